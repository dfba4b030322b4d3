"""`tradewind cycle ...`, `task ...` and `worker ...` with piped output."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.unit.cli.shell import Shell
from tests.unit.client.fake_scheduler import Ending
from tests.unit.client.fake_stack import FakeStack
from tradewind.api.node_task_manager.v1 import node_task_pb2
from tradewind.api.scheduler.v1 import cycle_pb2
from tradewind.cli.descriptions import note, show_cycle
from tradewind.cli.progress import Bars
from tradewind.cli.screen import Screen, some
from tradewind.client import CycleDescription, FlowStatus, StopRecord
from tradewind.client.cycles import cycle_from, statistics_from
from tradewind.client.node_tasks import node_task_from


def test_cycle_show_prints_cycle_and_nodes(shell: Shell) -> None:
    shell("flow", "run", "momentum", "--input", "n=1")

    ran = shell("cycle", "show", "momentum")

    assert ran.lines == [
        "momentum cycle 0 completed in 250 ms (2 completed)",
        "started 2030-03-17T17:46:40.000Z by run_flow, revision 1",
        'inputs {"n":1}',
        "",
        "NODE   TYPE   STATUS     ATTEMPT  WORKER  TOOK  NOTE",
        "feed   feed   completed  1        -       -     -",
        "model  model  completed  1        -       -     -",
    ]


def test_cycle_show_prints_failure_counts_once(shell: Shell, stack: FakeStack) -> None:
    stack.scheduler.ending, stack.scheduler.reason = Ending(status="FAILED", model="FAILED"), "1 failed of 2 nodes"
    shell("flow", "run", "momentum")
    assert shell("cycle", "show", "momentum").lines[0] == "momentum cycle 0 failed in 250 ms: 1 failed of 2 nodes"


def test_cycle_show_prints_node_errors(shell: Shell, stack: FakeStack) -> None:
    stack.scheduler.ending = Ending(status="FAILED", model="FAILED")
    shell("flow", "run", "momentum")

    assert shell("cycle", "show", "momentum", "0").lines[-1].split(maxsplit=6)[2:] == [
        "failed", "1", "-", "-", "ValueError: no prices",
    ]  # fmt: skip
    described = shell("cycle", "show", "momentum", "0", "-o", "json").json
    assert described["nodes"][1]["error"]["type"] == "ValueError"
    assert described["nodes"][0]["outputs"] == {"prices": [1, 2]}
    assert described["statistics"]["completed_nodes"] == 1


def test_cycle_show_prints_output_of_node(shell: Shell, stack: FakeStack) -> None:
    stack.scheduler.ending = Ending(outputs={"forecast": 7, "spread": [1.5]})
    shell("flow", "run", "momentum")

    assert shell("cycle", "show", "momentum", "--output", "model").json == {"forecast": 7, "spread": [1.5]}
    assert shell("cycle", "show", "momentum", "--output", "modle", ends=2).err == (
        'error: cycle 0 of momentum has no node "modle"; did you mean "model"?\n'
    )


def test_cycle_show_refuses_output_of_failed_node(shell: Shell, stack: FakeStack) -> None:
    stack.scheduler.ending = Ending(status="FAILED", model="FAILED")
    shell("flow", "run", "momentum")

    assert shell("cycle", "show", "momentum", "--output", "model", ends=1).err == (
        "error: model has no output: it is failed: ValueError: no prices\n"
    )


def test_cycle_list_filters_by_status_and_limit(shell: Shell, stack: FakeStack) -> None:
    for _ in range(3):
        shell("flow", "run", "momentum")
    stack.scheduler.ending = None
    shell("flow", "run", "momentum")

    lines = shell("cycle", "list", "momentum", "--limit", "2").lines
    assert lines[0].split() == ["CYCLE", "STATUS", "STARTED", "TOOK", "NODES", "ORIGIN", "REASON"]
    assert [line.split()[:2] for line in lines[1:]] == [["3", "running"], ["2", "completed"]]
    assert shell("cycle", "list", "momentum", "-n", "2").lines == lines
    listed = shell("cycle", "list", "momentum", "--status", "completed", "-o", "json").json
    assert [cycle["cycle"] for cycle in listed] == [2, 1, 0]
    assert 'unknown status "done"' in shell("cycle", "list", "momentum", "--status", "done", ends=2).err


def test_cycle_list_filters_by_start(shell: Shell, stack: FakeStack) -> None:
    shell("flow", "run", "momentum")
    first = shell("cycle", "list", "momentum", "-o", "json").json[0]["start_time"]
    shell("flow", "run", "momentum")

    earlier = shell("cycle", "list", "momentum", "--started-before", first, "-o", "json").json
    later = shell("cycle", "list", "momentum", "--started-after", first, "-o", "json").json
    assert ([cycle["cycle"] for cycle in earlier], [cycle["cycle"] for cycle in later]) == ([], [1, 0])
    assert (
        "'--started-after': \"noon\" is not a time"
        in shell("cycle", "list", "momentum", "--started-after", "noon", ends=2).err
    )


@pytest.mark.parametrize("arguments", [["show", "nobody"], ["list", "nobody"], ["show", "momentum", "9"]])
def test_unknown_flow_or_cycle_is_named_in_error(shell: Shell, arguments: list[str]) -> None:
    assert shell("cycle", *arguments, ends=2).err.startswith(("error: no flow", "error: momentum has no cycle 9"))


def test_task_get_prints_node_task(shell: Shell) -> None:
    assert shell("task", "show", "momentum:0:0:model").lines == [
        "node task  momentum:0:0:model",
        "type       model",
        "status     running",
        "attempt    2",
        "worker     w1",
        "progress   40 % fitting",
        'config     {"window": 20}',
    ]
    assert shell("task", "show", "momentum:0:0:model", "-o", "json").json["config"] == {"window": 20}
    unknown = shell("task", "show", "momentum:0:0:x", ends=2)
    assert unknown.err == 'error: no node task "momentum:0:0:x"; see: tradewind cycle show momentum 0\n'


def test_progress_of_completed_node_task_is_not_shown(shell: Shell, stack: FakeStack) -> None:
    stack.node_task_manager.task.status = node_task_pb2.NODE_TASK_STATUS_COMPLETED

    assert "progress" not in {line.split()[0] for line in shell("task", "show", "momentum:0:0:model").lines}


def test_task_terminate_sends_reason(shell: Shell, stack: FakeStack) -> None:
    ran = shell("task", "terminate", "momentum:0:0:model", "--reason", "too slow")

    assert ran.lines == ["momentum:0:0:model is running and was asked to stop"]
    assert stack.node_task_manager.task.stop.reason == "too slow"


def test_worker_list_hides_offline_workers_unless_asked(shell: Shell) -> None:
    assert shell("worker", "list").lines == [
        "WORKER  STATUS  LOAD  LAST HEARTBEAT            PROCESS  ADDRESS  NODE TYPES",
        "w1      active  1/10  2030-03-17T17:46:40.000Z  here:1   -        feed,model",
    ]
    assert [worker["status"] for worker in shell("worker", "list", "--all", "-o", "json").json] == ["active", "offline"]


@pytest.mark.parametrize(("count", "cell"), [(5, "t0,t1,t2,t3,t4"), (200, "t0,t1,t2,t3,t4 and 195 more")])
def test_worker_list_names_some_of_many_node_types(count: int, cell: str) -> None:
    assert some([f"t{number}" for number in range(count)]) == cell


def test_worker_reports_module_without_nodes_or_missing_module(shell: Shell) -> None:
    ran = shell("worker", "no_such_module", ends=2)

    assert ran.err.startswith("error: there is no module no_such_module in the current directory")
    assert "list of nodes" not in ran.err
    assert ran.err.endswith(
        "\nor did you mean a command? There are tradewind worker list and tradewind worker drain WORKER\n"
    )
    assert "has no nodes" in shell("worker", "run", "json", ends=2).err


def test_cycle_show_names_who_stopped_it_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    for reason, end in (("enough", ' by "ada": enough'), ("", ' by "ada"')):
        stopped = cycle_from(cycle_pb2.Cycle(flow_id="momentum"))
        stopped = replace(stopped, stop=StopRecord(by="ada", reason=reason, at=datetime(2030, 3, 17, tzinfo=UTC)))
        statistics = statistics_from(cycle_pb2.CycleStatistics())
        show_cycle(Screen(), CycleDescription(stopped, FlowStatus.UNKNOWN, (), (), (), statistics))
        assert f"stopped 2030-03-17T00:00:00.000Z{end}" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(("late", "planned"), [(0, ""), (90_000, ", planned for 2030-03-17T00:00:00.000Z")])
def test_cycle_show_names_the_planned_time_of_a_cycle_that_began_later(
    late: int, planned: str, capsys: pytest.CaptureFixture[str]
) -> None:
    time = datetime(2030, 3, 17, tzinfo=UTC)
    cycle = cycle_from(cycle_pb2.Cycle(flow_id="bars", origin=cycle_pb2.CYCLE_ORIGIN_BACKFILL, revision=2))
    cycle = replace(cycle, planned_time=time, start_time=time + timedelta(seconds=late))
    statistics = statistics_from(cycle_pb2.CycleStatistics())
    show_cycle(Screen(), CycleDescription(cycle, FlowStatus.UNKNOWN, (), (), (), statistics))
    assert f" by backfill{planned}, revision 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("status", "reason", "text"),
    [
        (node_task_pb2.NODE_TASK_STATUS_RUNNING, "enough", 'stopping: enough, by "ada"'),
        (node_task_pb2.NODE_TASK_STATUS_RUNNING, "", 'stopping: by "ada"'),
        (node_task_pb2.NODE_TASK_STATUS_COMPLETED, "enough", ""),
    ],
)
def test_note_says_that_a_node_is_stopping(
    status: node_task_pb2.NodeTaskStatus.ValueType, reason: str, text: str
) -> None:
    stop = node_task_pb2.StopMark(by="ada", reason=reason)
    assert note(node_task_from(node_task_pb2.NodeTask(node_task_id="f:0:0:a", status=status, stop=stop))) == text


def test_progress_bar_does_not_count_suspended_nodes_as_done() -> None:
    bars = Bars(Screen())
    cycle = cycle_from(cycle_pb2.Cycle(flow_id="momentum"))
    bars.show(cycle)
    bars.advance(cycle, statistics_from(cycle_pb2.CycleStatistics(total_nodes=4, completed_nodes=1, suspended_nodes=3)))
    (bar,) = bars._progress.tasks
    assert (bar.completed, bar.total) == (1, 4)
