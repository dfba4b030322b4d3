"""`tradewind flow ...` with piped output."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.shell import Shell
from tests.unit.client.fake_scheduler import FLOW, Ending
from tests.unit.client.fake_stack import FakeStack
from tradewind.api.scheduler.v1 import flow_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb


@pytest.fixture
def flow_file(tmp_path: Path) -> str:
    """A file with a definition."""
    path = tmp_path / "flow.json"
    path.write_text(json.dumps(FLOW), encoding="utf-8")
    return str(path)


def test_register_reads_file_and_labels(shell: Shell, stack: FakeStack, flow_file: str) -> None:
    ran = shell("flow", "register", "prices", flow_file, "--label", "team=a", "--label", "kind=x=y")

    assert ran.lines == [
        "prices registered: revision 1, 2 nodes in 1 component",
        '  note: nodes[0].type: no live worker offers "feed"',
    ]
    assert dict(stack.scheduler.last(pb.RegisterFlowRequest).labels) == {"team": "a", "kind": "x=y"}
    assert shell("flow", "register", "prices", flow_file).lines == [
        "prices is unchanged: revision 1, 2 nodes in 1 component"
    ]


@pytest.mark.parametrize("command", ["register", "plan"])
def test_command_names_order_of_file_and_name(shell: Shell, flow_file: str, command: str) -> None:
    refused = shell("flow", command, flow_file, "prices", ends=2).err
    assert refused == (
        f"error: {flow_file} is a file: name the flow first, as in: tradewind flow {command} prices {flow_file}\n"
    )


@pytest.fixture
def flow_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A flow that is built in a Python module of the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    text = "from tradewind.flow import Flow\nflow = Flow('built', '1m')\nflow.node('feed', 'feed')\n"
    (tmp_path / "built_flows.py").write_text(text, encoding="utf-8")
    yield "built_flows:flow"
    sys.modules.pop("built_flows", None)


def test_register_and_plan_accept_flow_built_in_python(shell: Shell, stack: FakeStack, flow_module: str) -> None:
    shell("flow", "register", "prices", flow_module)
    sent = stack.scheduler.last(pb.RegisterFlowRequest)
    assert (sent.flow_id, json.loads(sent.weather_json)["interval"]) == ("prices", "1m")

    for name, flow_id in ((), "built"), (("prices",), "prices"):
        shell("flow", "plan", *name, flow_module)
        assert stack.scheduler.last(pb.RegisterFlowRequest).flow_id == flow_id
    refused = shell("flow", "plan", "a", "b", flow_module, ends=2).err
    assert refused == "error: plan takes a name and a file, not 3 arguments\n"


def test_register_refuses_python_source_without_flow(shell: Shell, flow_module: str) -> None:
    assert shell("flow", "register", "prices", "built_flows:flaw", ends=2).err == (
        'error: module built_flows has no flaw; did you mean "flow"?\n'
    )
    assert shell("flow", "register", "prices", "built_flows.py", ends=2).err == (
        "error: built_flows.py is Python: name the module and its flow, such as built_flows:flow\n"
    )


def test_register_reads_stdin(shell: Shell, stack: FakeStack) -> None:
    ran = shell("flow", "register", "prices", "-", "-o", "json", input=json.dumps(FLOW))

    assert ran.json["changed"] is True
    assert ran.json["flow"]["flow_id"] == "prices"
    assert ran.json["flow"]["status"] == "registered"
    assert ran.json["flow"]["config"] == FLOW
    assert ran.json["flow"]["created_at"] == "2030-03-17T17:46:40.000Z"


def test_register_lists_every_fault_of_definition(shell: Shell, stack: FakeStack, flow_file: str) -> None:
    stack.scheduler.violations = [
        flow_pb2.Violation(path="interval", message="is missing"),
        flow_pb2.Violation(path="edges[3].target", message='no node "modle"; did you mean "model"?'),
    ]

    ran = shell("flow", "register", "prices", flow_file, ends=2)

    assert ran.out == ""
    assert ran.err.splitlines() == [
        "error: the request has faults:",
        "  interval: is missing",
        '  edges[3].target: no node "modle"; did you mean "model"?',
    ]


def test_register_notes_unknown_node_types_beside_faults(shell: Shell, stack: FakeStack, flow_file: str) -> None:
    stack.scheduler.violations = [flow_pb2.Violation(path="interval", message="is missing")]
    stack.scheduler.oddities = [
        flow_pb2.Violation(path="nodes[0].type", message='no live worker offers "fed"'),
        flow_pb2.Violation(path="nodes[1]", message='input "prices" is required'),
    ]

    ran = shell("flow", "register", "prices", flow_file, ends=2)

    assert ran.err.splitlines() == [
        'note: nodes[0].type: no live worker offers "fed"',
        "error: the request has faults:",
        "  interval: is missing",
    ]


@pytest.mark.parametrize(
    "path", ["edges[3].target_handle", "edges[0].source_handle", "nodes[1].config.window", "nodes[1].config"]
)
@pytest.mark.parametrize("command", ["analyze", "register"])
def test_wrong_handle_or_config_may_be_that_of_an_older_worker(
    shell: Shell, stack: FakeStack, flow_file: str, command: str, path: str
) -> None:
    stack.scheduler.violations = [flow_pb2.Violation(path=path, message="there is none")]

    ran = shell("flow", command, *(["prices"] if command == "register" else []), flow_file, ends=2)

    note = "note: workers say which handles and configs their nodes have: start them again after changing a node"
    assert ran.err.splitlines()[0] == note


def test_analyze_prints_components_warnings_and_faults(shell: Shell, stack: FakeStack, flow_file: str) -> None:
    assert shell("flow", "analyze", flow_file).lines == [
        "COMPONENT  NODES  ENTRY NODES  CYCLE",
        "0          2      feed         -",
    ]
    stack.scheduler.oddities = [flow_pb2.Violation(path="nodes[0].type", message="no live worker offers it")]
    assert shell("flow", "analyze", flow_file).lines[2:] == ["  note: nodes[0].type: no live worker offers it"]
    stack.scheduler.violations = [flow_pb2.Violation(path="interval", message="is missing")]
    ran = shell("flow", "analyze", flow_file, "-o", "json", ends=2)
    assert [each["path"] for each in ran.json["warnings"]] == ["nodes[0].type"]
    assert ran.json["violations"] == [{"path": "interval", "message": "is missing"}]
    assert "interval: is missing" in ran.err


def test_start_and_stop_print_status(shell: Shell, stack: FakeStack) -> None:
    assert shell("flow", "start", "momentum").lines[0].startswith("momentum is running")
    assert shell("flow", "stop", "momentum", "--reason", "closed").lines == ["momentum is stopped"]
    assert stack.scheduler.last(pb.StopFlowRequest).reason == "closed"
    assert shell("flow", "stop", "momentum", "-o", "json").json["status"] == "stopped"


def test_run_without_wait_returns_at_once(shell: Shell, stack: FakeStack) -> None:
    stack.scheduler.ending = None

    assert shell("flow", "run", "momentum").lines == ["started cycle 0 of momentum"]
    assert shell("flow", "run", "momentum", "--request-id", "r", "-o", "json").json["status"] == "running"
    assert stack.scheduler.last(pb.RunFlowRequest).request_id == "r"


def test_run_with_wait_prints_outputs(shell: Shell, stack: FakeStack) -> None:
    ran = shell(
        "flow", "run", "momentum", "--wait", "--input", "window=3", "--input", "name=AAPL", "--input", 'l=["a"]'
    )

    assert ran.lines == ["momentum cycle 0 completed in 250 ms (2 completed)", "model.forecast = 7"]
    inputs = json.loads(stack.scheduler.last(pb.RunFlowRequest).inputs_json)
    assert inputs == {"window": 3, "name": "AAPL", "l": ["a"]}


def test_run_with_wait_prints_result_that_a_node_set(shell: Shell, stack: FakeStack) -> None:
    stack.scheduler.ending = Ending(result_json='{"traded":true}')
    assert shell("flow", "run", "momentum", "--wait").lines[1:] == ["model.forecast = 7", 'result = {"traded": true}']
    assert 'result {"traded":true}' in shell("cycle", "show", "momentum").lines


def test_run_notes_unused_inputs(shell: Shell, stack: FakeStack) -> None:
    stack.scheduler.warnings = ['no entry node takes the input "windw"; did you mean "window"?']
    ran = shell("flow", "run", "momentum", "--wait", "--input", "windw=3")
    assert ran.lines == ["momentum cycle 0 completed in 250 ms (2 completed)", "model.forecast = 7"]
    assert ran.err == 'note: no entry node takes the input "windw"; did you mean "window"?\n'


def test_inputs_may_be_given_as_json_object(shell: Shell, stack: FakeStack) -> None:
    shell("flow", "run", "momentum", "--inputs-json", '{"a": 1, "b": 2}', "--input", "b=3")
    assert json.loads(stack.scheduler.last(pb.RunFlowRequest).inputs_json) == {"a": 1, "b": 3}

    shell("flow", "run", "momentum", "--inputs-json", "-", input='{"c": 4}')
    assert json.loads(stack.scheduler.last(pb.RunFlowRequest).inputs_json) == {"c": 4}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input", "window"], '"window" is not KEY=VALUE'),
        (["--input", "window=1", "--input", "window=2"], '"window" is given twice'),
        (["--inputs-json", "{"], "invalid JSON: Expecting"),
        (["--inputs-json", "[1]"], "this is not a JSON object"),
    ],
)
def test_malformed_inputs_are_refused(shell: Shell, arguments: list[str], message: str) -> None:
    assert message in shell("flow", "run", "momentum", *arguments, ends=2).err


def test_failed_cycle_exits_with_1(shell: Shell, stack: FakeStack) -> None:
    stack.scheduler.ending = Ending(status="FAILED", model="FAILED")

    assert shell("flow", "run", "momentum", "--wait", ends=1).lines == [
        "momentum cycle 0 failed in 250 ms (1 completed, 1 failed)",
        "  model (model) failed: ValueError: no prices",
    ]
    ran = shell("flow", "run", "momentum", "--wait", "-o", "json", ends=1)
    assert ran.json["cycle"]["status"] == "failed"
    assert ran.json["outputs"] == {}
    assert ran.json["failures"][0]["error"]["message"] == "no prices"


def test_wait_times_out(shell: Shell, stack: FakeStack) -> None:
    stack.scheduler.ending = None

    ran = shell("flow", "run", "momentum", "--wait", "--timeout", "0.1", ends=1)

    assert ran.err.splitlines() == [
        "error: cycle 0 of momentum is still running after 0.1 s and continues",
        "  feed (feed): pending",
        "  model (model): pending",
    ]


def test_watch_ends_after_given_number_of_cycles(shell: Shell, stack: FakeStack) -> None:
    shell("flow", "run", "momentum")
    stack.scheduler.ending = None
    shell("flow", "run", "momentum")
    stack.scheduler.end_soon("momentum", 1)

    ran = shell("flow", "watch", "momentum", "--cycles", "1")

    assert ran.lines == [
        "momentum cycle 1 running",
        "momentum cycle 1 completed in 250 ms (2 completed)",
    ]


def test_watch_prints_json_lines(shell: Shell, stack: FakeStack) -> None:
    stack.scheduler.ending = None
    shell("flow", "run", "momentum")
    stack.scheduler.end_soon("momentum", 0)

    ran = shell("flow", "watch", "momentum", "--cycles", "1", "-o", "json")

    assert [json.loads(line)["status"] for line in ran.lines] == ["running", "completed"]


def test_logs_filter_by_level_and_node(shell: Shell, stack: FakeStack) -> None:
    stack.scheduler.log("momentum", "begun")
    stack.scheduler.log("momentum", "odd prices", node_id="feed", level="WARNING")

    assert shell("flow", "logs", "momentum").lines == [
        "2030-03-17T17:46:40.000Z  0  INFO     scheduler: begun",
        "2030-03-17T17:46:41.000Z  0  WARNING  feed: odd prices",
    ]
    assert shell("flow", "logs", "momentum", "--level", "warning", "--node", "feed").lines[0].endswith("odd prices")
    assert shell("flow", "logs", "momentum", "-o", "json").json[0]["source"] == "scheduler"
    assert shell("flow", "logs", "momentum", "--level", "Error").out == ""


@pytest.mark.parametrize("level", ["loud", "unknown"])
def test_unknown_log_level_is_refused(shell: Shell, level: str) -> None:
    stderr = shell("flow", "logs", "momentum", "--level", level, ends=2).err

    assert f'unknown level "{level}": use one of debug, info, warning, error, critical\n' in stderr


@pytest.mark.parametrize("follow", [[], ["-f"]])
def test_logs_of_unknown_node_suggest_similar_name(shell: Shell, stack: FakeStack, follow: list[str]) -> None:
    ran = shell("flow", "logs", "momentum", "--node", "modle", *follow, ends=2)
    assert ran.err == 'error: momentum has no node "modle"; did you mean "model"?\n'
    for known in ("model", "model:0"):
        assert shell("flow", "logs", "momentum", "--node", known).out == ""


def test_followed_logs_end_with_cycle(shell: Shell, stack: FakeStack) -> None:
    shell("flow", "run", "momentum")
    stack.scheduler.log("momentum", "begun")

    assert len(shell("flow", "logs", "momentum", "--cycle", "0", "-f").lines) == 1
    assert json.loads(shell("flow", "logs", "momentum", "--cycle", "0", "-f", "-o", "json").out)["message"] == "begun"


def test_graph_draws_text_mermaid_dot_and_json(shell: Shell) -> None:
    assert "feed (feed)" in shell("flow", "graph", "momentum").lines
    assert shell("flow", "graph", "momentum", "-o", "mermaid").lines[0] == "flowchart LR"
    assert shell("flow", "graph", "momentum", "-o", "dot").lines[0] == "digraph flow {"
    assert shell("flow", "graph", "momentum", "-o", "json").json == {
        "flow_id": "momentum",
        "nodes": FLOW["nodes"],
        "edges": FLOW["edges"],
    }


def test_delete_asks_for_confirmation_at_terminal(shell: Shell, stack: FakeStack) -> None:
    kept = shell.at_terminal("flow", "delete", "momentum", typed="n\n")
    assert "momentum is registered. Delete it? [y/N]" in kept.out
    assert (kept.code, "momentum" in stack.scheduler.flows) == (1, True)
    assert "momentum deleted" in shell.at_terminal("flow", "delete", "momentum", typed="y\n").out
    stack.scheduler.add_flow("other")
    assert shell.at_terminal("flow", "delete", "other", "--yes").out.split() == ["other", "deleted"]


def test_delete_reports_whether_it_is_done(shell: Shell, stack: FakeStack) -> None:
    stack.scheduler.add_flow("other")

    assert shell("flow", "delete", "momentum").lines == ["momentum deleted"]
    assert shell("flow", "delete", "other", "--timeout", "0", "-o", "json").json == {"flow_id": "other", "done": False}


def test_list_filters_by_status_and_label(shell: Shell, stack: FakeStack) -> None:
    shell("flow", "run", "momentum")
    stack.scheduler.add_flow("aaa", labels={"team": "a"}, status=flow_pb2.FLOW_STATUS_RUNNING)

    assert shell("flow", "list").lines == [
        "FLOW      STATUS      NODES  LAST CYCLE  RUNNING  NEXT  LABELS",
        "aaa       running     2      -           -        -     team=a",
        "momentum  registered  2      0           -        -     -",
    ]
    assert [flow["flow_id"] for flow in shell("flow", "list", "--status", "running", "-o", "json").json] == ["aaa"]
    assert [flow["flow_id"] for flow in shell("flow", "list", "--label", "team=a", "-o", "json").json] == ["aaa"]
    assert 'unknown status "walking"' in shell("flow", "list", "--status", "walking", ends=2).err


def test_list_shows_a_hundred_flows_and_says_that_there_are_more(shell: Shell, stack: FakeStack) -> None:
    for number in range(100):
        stack.scheduler.add_flow(f"f{number:03}")
    ran = shell("flow", "list")
    assert [line.split()[0] for line in ran.lines] == ["FLOW", *(f"f{number:03}" for number in range(100))]
    assert ran.err == "note: there are more; --limit shows them\n"
    every = shell("flow", "list", "--limit", "101", "-o", "json")
    assert (len(every.json), every.json[-1]["flow_id"], every.err) == (101, "momentum", "")


def test_unknown_flow_is_named_in_error(shell: Shell) -> None:
    for command in ("start", "stop", "run", "status", "watch", "logs", "delete", "graph"):
        assert shell("flow", command, "nobody", ends=2).err == 'error: no flow "nobody"; see: tradewind flow list\n'


def test_register_reads_yaml_file(shell: Shell, stack: FakeStack, tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text("interval: 5m\nnodes:\n- {id: feed, type: feed}\n", encoding="utf-8")

    shell("flow", "register", "prices", str(path))

    sent = json.loads(stack.scheduler.last(pb.RegisterFlowRequest).weather_json)
    assert sent == {"interval": "5m", "nodes": [{"id": "feed", "type": "feed"}], "edges": []}


def test_syntax_error_of_file_is_reported_with_its_place(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "flow.json"
    path.write_text('{"interval": 5,\n "nodes": [}', encoding="utf-8")

    assert shell("flow", "analyze", str(path), ends=2).err == f"error: {path}:2:12: is not JSON: Expecting value\n"
    assert "<stdin>:1:2: is not JSON" in shell("flow", "register", "prices", "-", input="{", ends=2).err


def test_missing_file_is_reported(shell: Shell) -> None:
    ran = shell("flow", "register", "prices", "nowhere.json", ends=2)

    assert ran.err == "error: nowhere.json: No such file or directory\n"


def test_module_without_flow_hints_at_its_flow(shell: Shell) -> None:
    ran = shell("flow", "register", "prices", "nodes", ends=2)

    assert ran.err == "error: there is no file nodes; of a module, name the flow as well, such as nodes:flow\n"


@pytest.mark.parametrize("timeout", ["0.1", "100ms", "0.1s"])
def test_timeout_is_given_as_number_or_duration_text(shell: Shell, stack: FakeStack, timeout: str) -> None:
    stack.scheduler.ending = None
    assert (
        "is still running after 0.1 s" in shell("flow", "run", "momentum", "--wait", "--timeout", timeout, ends=1).err
    )
    ran = shell("flow", "run", "momentum", "--wait", "--timeout", "soon", ends=2)
    assert '"soon" is not a length of time' in ran.err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["interval"], '"interval" is not a change; write FIELD=VALUE'),
        (["keep_cycles=many"], '"keep_cycles=many": this is not a number'),
        (["schedule={"], "this is not valid JSON"),
        (["labels.a=b", "labels={}"], "give labels as a whole or one by one, not both"),
    ],
)
def test_update_refuses_malformed_change_before_calling_server(shell: Shell, changes: list[str], message: str) -> None:
    assert message in shell("--address", "localhost:1", "flow", "update", "momentum", *changes, ends=2).err
