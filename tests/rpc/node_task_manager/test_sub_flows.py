"""Nodes that run flows, over the wire: what the scheduler learns about them, asks for and reports."""

import json
from typing import Any

import grpc
import pytest

from tests.rpc.node_task_manager.conftest import Ntm, Start, plan
from tradewind.api.node_task_manager.v1 import component_pb2, explanation_pb2, node_task_pb2, sub_flow_pb2, waiting_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.client.refusals import error_from
from tradewind.server.partitions import partition_of

CYCLE = node_task_pb2.SubFlowCycle(flow_id="other", cycle=4)
PARTITION = partition_of("flow")


def runs_other(**config: Any) -> component_pb2.Plan:
    """Return a plan: node `first` runs a cycle of flow `other`, and so does `second`, with the output of `first`."""
    made = plan(("first", "output", "second", "given"))
    for node in made.nodes:
        node.node_type = "flow"
        node.config_json = json.dumps({"flow_id": "other", **config})
    return made


async def waits(ntm: Ntm, *nodes: str) -> list[sub_flow_pb2.SubFlowWait]:
    request = sub_flow_pb2.ListSubFlowWaitsRequest(
        flow_id="flow", user_id="default", node_task_ids=[f"flow:0:0:{node}" for node in nodes]
    )
    return list((await ntm.stub.ListSubFlowWaits(request)).waits)


async def report(ntm: Ntm, node: str = "first", **fields: Any) -> bool:
    values = {"run_id": "r0", "user_id": "default", "attempt": 1, "cycle": CYCLE, **fields}
    each = sub_flow_pb2.SubFlowReport(node_task_id=f"flow:0:0:{node}", **values)
    response = await ntm.stub.ReportSubFlows(sub_flow_pb2.ReportSubFlowsRequest(reports=[each]))
    return response.awaited[0]


async def test_scheduler_receives_a_sub_flow_reads_its_inputs_and_ends_its_wait(ntm: Ntm) -> None:
    await ntm.submit(runs_other(input={"a": 1, "b": "x"}), inputs_json='{"b":[2]}')
    stream = ntm.stub.ReceiveEvents()
    subscription = pb2.EventSubscription(partition=PARTITION, epoch=1)
    await stream.write(pb2.ReceiveEventsRequest(subscribe=[subscription]))
    message: Any = await stream.read()
    event = message.events[0].sub_flow
    assert (event.node_task_id, event.run_id, event.HasField("abandoned")) == ("flow:0:0:first", "r0", False)
    (wait,) = await waits(ntm, "first", "second")
    assert (wait.flow_id, wait.attempt, wait.HasField("cycle")) == ("other", 1, False)
    assert json.loads(wait.inputs_json) == {"a": 1, "b": [2]}
    assert await report(ntm)
    first = await ntm.node("first")
    assert (first.sub_flow, first.wait.flow_id) == (CYCLE, "other")
    assert first.reason == 'waits for cycle 4 of flow "other"'
    assert await report(ntm, output_json='{"n":1}')
    assert not await report(ntm, output_json='{"n":2}')
    (wait,) = await waits(ntm, "second")
    assert json.loads(wait.inputs_json) == {"a": 1, "b": "x", "given": {"n": 1}}
    assert [each.node_task_id for each in await waits(ntm)] == ["flow:0:0:second"]
    error = node_task_pb2.NodeTaskError(code="SUB_FLOW_FAILED", message="it failed")
    assert await report(ntm, "second", error=error)
    assert (await ntm.node("second")).error == error
    stream.cancel()


async def test_config_numbers_keep_their_exact_text(ntm: Ntm) -> None:
    runs, given = runs_other(), '{"a":123456789012345678901234567890.10}'
    runs.nodes[0].config_json = '{"flow_id":"other","input":' + given + "}"
    await ntm.submit(runs)
    (wait,) = await waits(ntm, "first")
    assert wait.inputs_json == given


@pytest.mark.parametrize("number", ["1e999", "7" * 5000])
async def test_sub_flow_output_may_hold_any_number(ntm: Ntm, number: str) -> None:
    await ntm.submit(runs_other())
    assert await report(ntm, output_json=number)
    (wait,) = await waits(ntm, "second")
    assert wait.inputs_json == '{"given":' + number + "}"


async def test_wait_for_a_sub_flow_is_explained(ntm: Ntm) -> None:
    await ntm.submit(runs_other())
    request = explanation_pb2.ExplainNodeTaskRequest(node_task_id="flow:0:0:first", user_id="default")
    (before,) = (await ntm.stub.ExplainNodeTask(request)).reasons
    assert await report(ntm)
    (after,) = (await ntm.stub.ExplainNodeTask(request)).reasons
    assert [before.code, after.code] == ["waits_for_flow"] * 2
    assert before.sentence == 'waits for a cycle of flow "other" to begin'
    assert after.sentence == 'waits for cycle 4 of flow "other"'
    assert (after.facts["flow_id"], after.facts["cycle"]) == ("other", 4)


async def test_another_replica_accepts_the_report(start: Start) -> None:
    """So nothing is lost when a node task manager goes away meanwhile."""
    before, after = await start(), await start()
    await before.submit(runs_other())
    await before.server.stop()
    assert [each.node_task_id for each in await waits(after)] == ["flow:0:0:first"]
    assert await report(after, output_json="1")
    assert (await after.node("first")).status == node_task_pb2.NODE_TASK_STATUS_COMPLETED


async def test_too_large_inputs_are_reported_by_size_only(ntm: Ntm) -> None:
    await ntm.submit(runs_other(input={"a": "x" * 200_000}), inputs_json=json.dumps({"b": "y" * 1_000_000}))
    (wait,) = await waits(ntm, "first")
    assert (wait.inputs_json, wait.input_bytes > 1024 * 1024) == ("", True)


async def test_node_waiting_for_a_sub_flow_refuses_signals(ntm: Ntm) -> None:
    await ntm.submit(runs_other())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ntm.stub.SignalNode(
            waiting_pb2.SignalNodeRequest(node_task_id="flow:0:0:first", user_id="default", signal="go")
        )
    assert 'waits for a cycle of flow "other", not for a signal' in str(error_from(caught.value, "here", "SignalNode"))


async def test_bad_reports_are_refused_with_every_fault(ntm: Ntm) -> None:
    reports = [
        sub_flow_pb2.SubFlowReport(node_task_id="flow", cycle=CYCLE),
        sub_flow_pb2.SubFlowReport(node_task_id="flow:0:0:first"),
        sub_flow_pb2.SubFlowReport(node_task_id="flow:0:0:first", output_json="{"),
    ]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ntm.stub.ReportSubFlows(sub_flow_pb2.ReportSubFlowsRequest(reports=reports))
    error: Any = error_from(caught.value, "here", "ReportSubFlows")
    assert [each.path for each in error.violations] == [
        "reports[0].node_task_id",
        "reports[1].cycle",
        "reports[2].output_json",
    ]
