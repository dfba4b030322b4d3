"""Answers to bulks of runs: in order, in groups, and small enough for a message."""

import asyncio
import json

from tests.rpc.scheduler.conftest import Client, Peers
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import node_task_pb2
from tradewind.api.scheduler.v1 import cycle_pb2, memory_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.scheduler.use_cases.run_cycles import GROUP


async def test_bulk_answer_omits_inputs_when_they_do_not_fit(scheduler: Client) -> None:
    await scheduler.register("f")
    inputs = json.dumps({"text": "x" * 990_000})
    items = [pb2.RunFlowItem(flow_id="f", inputs_json=inputs) for _ in range(4)]
    response = await scheduler.stub.RunFlows(pb2.RunFlowsRequest(items=items))
    assert [each.cycle.cycle for each in response.results] == [0, 1, 2, 3]
    assert not any(each.cycle.inputs_json for each in response.results)
    assert (await scheduler.cycle(cycle=3)).inputs_json == inputs
    few = await scheduler.stub.RunFlows(pb2.RunFlowsRequest(items=items[:2]))
    assert all(each.cycle.inputs_json == inputs for each in few.results)


async def test_bulk_answer_with_large_inputs_has_less_room_for_outputs(scheduler: Client, peers: Peers) -> None:
    await scheduler.register("f", "a")
    inputs = json.dumps({"text": "x" * 850_000})
    output = node_task_pb2.Output(handle="out", value_json=json.dumps("x" * 700_000))
    for cycle in range(3):
        peers.node_tasks.nodes["f", cycle, 0] = [
            node_task_pb2.NodeTask(node_task_id=f"f:{cycle}:0:a", node_id="a", outputs=[output])
        ]
    items = [pb2.RunFlowItem(flow_id="f", inputs_json=inputs) for _ in range(3)]
    request = pb2.RunFlowsRequest(items=items, include_outputs=True)
    request.wait.FromSeconds(10)
    response = await scheduler.stub.RunFlows(request)
    assert all(each.cycle.inputs_json == inputs for each in response.results)
    assert [(len(each.outputs), each.outputs_omitted) for each in response.results] == [
        (1, False),
        (0, True),
        (0, True),
    ]
    assert response.ByteSize() < 4 * 1024 * 1024


async def test_bulk_of_several_groups_is_answered_in_order(scheduler: Client, peers: Peers) -> None:
    await scheduler.register("f", "a")
    count = 2 * GROUP + 1
    for cycle in range(count):
        output = node_task_pb2.Output(handle="out", value_json=str(cycle))
        peers.node_tasks.nodes["f", cycle, 0] = [
            node_task_pb2.NodeTask(node_task_id=f"f:{cycle}:0:a", node_id="a", outputs=[output])
        ]
    items = [pb2.RunFlowItem(flow_id="gone" if at == GROUP else "f") for at in range(count + 1)]
    request = pb2.RunFlowsRequest(items=items, include_outputs=True)
    request.wait.FromSeconds(10)
    response = await scheduler.stub.RunFlows(request)
    assert response.results[GROUP].error_reason == "FLOW_NOT_FOUND"
    del response.results[GROUP]
    assert [each.cycle.cycle for each in response.results] == list(range(count))
    assert [each.outputs[0].outputs[0].value_json for each in response.results] == [str(at) for at in range(count)]


async def test_bulk_answers_each_item_separately(scheduler: Client, peers: Peers) -> None:
    flows = [f"flow-{number}" for number in range(40)]
    await asyncio.gather(*(scheduler.register(flow_id) for flow_id in flows))
    items = [pb2.RunFlowItem(flow_id=flow_id) for flow_id in [*flows, "nothing", flows[0]]]
    request = pb2.RunFlowsRequest(items=items)
    request.wait.FromSeconds(10)
    response = await scheduler.stub.RunFlows(request)
    assert [result.cycle.flow_id for result in response.results[:40]] == flows
    assert {result.cycle.status for result in response.results[:40]} == {cycle_pb2.CYCLE_STATUS_COMPLETED}
    assert response.results[40].error_reason == "FLOW_NOT_FOUND"
    assert "nothing" in response.results[40].error_message
    assert response.results[41].cycle.cycle == 1
    assert len(peers.node_tasks.requests) <= 3


async def run_with_results(scheduler: Client, peers: Peers, count: int, result: str) -> pb2.RunFlowsResponse:
    """Run a flow so many times at once; each cycle gets this result. Return the answer, with outputs."""
    await scheduler.register("f", "a")
    peers.node_tasks.automatic = False
    request = pb2.RunFlowsRequest(items=[pb2.RunFlowItem(flow_id="f", inputs_json="{}")] * count, include_outputs=True)
    request.wait.FromSeconds(20)
    answer = asyncio.ensure_future(scheduler.stub.RunFlows(request))
    await until(lambda: len(peers.node_tasks.runs) == count, "all runs have begun")
    for number in range(count):
        run_id = peers.node_tasks.runs["f", number, 0].submission.run_id
        scope = memory_pb2.MemoryScope(flow_id="f", cycle=number, run=0, run_id=run_id)
        await scheduler.stub.UpdateMemory(memory_pb2.UpdateMemoryRequest(scope=scope, result_json=result))
        await peers.node_tasks.finish(("f", number, 0), "0")
    return await answer


async def test_bulk_answer_has_results_and_inputs_of_its_cycles(scheduler: Client, peers: Peers) -> None:
    result = json.dumps("x" * 5000)
    response = await run_with_results(scheduler, peers, 2, result)
    assert [(each.cycle.inputs_json, each.cycle.result_json) for each in response.results] == [("{}", result)] * 2


async def test_bulk_answer_omits_results_that_do_not_fit_beside_the_outputs(scheduler: Client, peers: Peers) -> None:
    output = node_task_pb2.Output(handle="out", value_json=json.dumps("x" * 1_900_000))
    peers.node_tasks.nodes["f", 0, 0] = [node_task_pb2.NodeTask(node_task_id="f:0:0:a", node_id="a", outputs=[output])]
    response = await run_with_results(scheduler, peers, 40, json.dumps("x" * 60_000))
    assert not any(each.cycle.result_json for each in response.results)
    assert response.results[0].outputs[0].outputs[0] == output
    assert response.ByteSize() < 4 * 1024 * 1024
