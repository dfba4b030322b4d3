"""Running cycles again: what is asked for, over a real channel."""

import json

import grpc
import pytest

from tests.rpc.scheduler.conftest import Client, Peers, Start
from tests.rpc.scheduler.errors import refused
from tradewind.api.node_task_manager.v1 import node_task_pb2
from tradewind.api.scheduler.v1 import cycle_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.scheduler.domain.revision import KEPT_REVISIONS

COMPLETED = node_task_pb2.NODE_TASK_STATUS_COMPLETED
FAILED = node_task_pb2.NODE_TASK_STATUS_FAILED


async def ran(scheduler: Client, peers: Peers, inputs_json: str = "", **ended: int) -> cycle_pb2.Cycle:
    """Run the flow `f`, whose nodes have ended in these statuses."""
    cycle = await scheduler.run(inputs_json=inputs_json)
    peers.node_tasks.nodes["f", 0, 0] = [
        node_task_pb2.NodeTask(node_id=node_id, run_id=cycle.run_id, status=status, emitted_handles=["out"])  # type: ignore[arg-type]
        for node_id, status in ended.items()
    ]
    return cycle


@pytest.mark.parametrize(
    ("before", "given", "expected"),
    [
        ("", '{"b": 3}', {"b": 3}),
        ('{"a": 1, "b": 2}', '{"b": 3}', {"a": 1, "b": 3}),
        ('{"a": 1, "b": 2}', "", {"a": 1, "b": 2}),
    ],
    ids=["first inputs", "some replaced", "none given"],
)
async def test_rerun_has_the_inputs_before_but_for_those_given(
    scheduler: Client, peers: Peers, before: str, given: str, expected: dict[str, int]
) -> None:
    await scheduler.register()
    await ran(scheduler, peers, before, a=FAILED)
    again = await scheduler.stub.RerunCycle(pb2.RerunCycleRequest(flow_id="f", inputs_json=given))
    assert (again.cycle.run, json.loads(again.cycle.inputs_json)) == (1, expected)


async def test_inputs_that_no_node_of_the_rerun_would_see_are_refused(scheduler: Client, peers: Peers) -> None:
    await scheduler.register("f", "a", "b", edges="a>b")
    await ran(scheduler, peers, a=COMPLETED, b=FAILED)
    again = scheduler.stub.RerunCycle(pb2.RerunCycleRequest(flow_id="f", inputs_json='{"b": 3}'))
    refusal = await refused(again, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert [path for path, _ in refusal.violations] == ["inputs_json"]
    both = pb2.RerunCycleRequest(flow_id="f", inputs_json='{"b": 3}', from_node_ids=["a"])
    assert (await scheduler.stub.RerunCycle(both)).cycle.run == 1


async def test_repeated_rerun_is_answered_after_its_revision_has_gone(
    start: Start, scheduler: Client, peers: Peers
) -> None:
    await scheduler.register()
    await ran(scheduler, peers, a=FAILED)
    request = pb2.RerunCycleRequest(flow_id="f", inputs_json='{"b": 3}', request_id="once", include_outputs=True)
    first = (await scheduler.stub.RerunCycle(request)).cycle
    await scheduler.ended()
    for number in range(KEPT_REVISIONS):
        await scheduler.register("f", f"n{number}")
    # A scheduler that has never known the revision.
    other = await start()
    again = await other.stub.RerunCycle(request)
    assert (again.cycle.run_id, again.cycle.run) == (first.run_id, 1)
    assert (list(again.outputs), list(again.warnings)) == ([], [])
