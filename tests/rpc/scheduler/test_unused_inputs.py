"""Inputs of a run that no entry node takes: the caller is warned, and the cycle runs."""

import json

import pytest

from tests.rpc.scheduler.conftest import Client, Peers
from tradewind.api.node_task_manager.v1 import node_task_pb2
from tradewind.api.registry.v1 import node_type_pb2
from tradewind.api.scheduler.v1 import flow_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2


def offer(peers: Peers, node_type: str, *inputs: str) -> None:
    handles = [node_type_pb2.InputHandle(name=name) for name in inputs]
    peers.registry.offer(node_type_pb2.NodeType(type=node_type, inputs=handles))


async def register(scheduler: Client, *types: str, edges: str = "") -> None:
    """Register flow `f` with nodes `n0`, `n1` and so on of these types."""
    spec = flow_pb2.FlowSpec(interval="60", overlap=flow_pb2.OVERLAP_POLICY_ALLOW)
    for place, node_type in enumerate(types):
        config = {"flow_id": "below"} if node_type == "flow" else {"seconds": 1} if node_type == "delay" else {}
        spec.nodes.add(id=f"n{place}", type=node_type, config_json=json.dumps(config))
    for edge in edges.split():
        source, target = edge.split(">")
        spec.edges.add(source=source, source_handle="output", target=target, target_handle="day")
    await scheduler.stub.RegisterFlow(pb2.RegisterFlowRequest(flow_id="f", spec=spec))


async def warnings_for(scheduler: Client, *names: str) -> list[str]:
    """Run `f` with inputs of these names and return the warnings."""
    response = await scheduler.run_flow(inputs_json=json.dumps(dict.fromkeys(names, 1)), wait=0)
    assert response.cycle.flow_id == "f"
    return list(response.warnings)


async def test_warnings_name_all_unknown_inputs_with_the_nearest_names(scheduler: Client, peers: Peers) -> None:
    offer(peers, "prices", "month", "symbol")
    offer(peers, "rates", "bank")
    await register(scheduler, "prices", "rates")
    assert await warnings_for(scheduler, "monht", "bank", "symbols", "xyz") == [
        'no entry node takes the input "monht"; did you mean "month"?',
        'no entry node takes the input "symbols"; did you mean "symbol"?',
        'no entry node takes the input "xyz"; they take "bank", "month", "symbol"',
    ]
    assert await warnings_for(scheduler, "month", "symbol", "bank") == []


async def test_inputs_of_later_nodes_do_not_count(scheduler: Client, peers: Peers) -> None:
    peers.registry.offer(
        node_type_pb2.NodeType(
            type="prices",
            inputs=[node_type_pb2.InputHandle(name="month")],
            outputs=[node_type_pb2.OutputHandle(name="output")],
        )
    )
    offer(peers, "model", "day")
    await register(scheduler, "prices", "model", edges="n0>n1")
    assert await warnings_for(scheduler, "day") == ['no entry node takes the input "day"; they take "month"']


@pytest.mark.parametrize("types", [("prices", "unknown"), ("prices", "flow")], ids=["nobody offers one", "a sub-flow"])
async def test_no_warning_when_a_node_may_accept_any_input(
    scheduler: Client, peers: Peers, types: tuple[str, ...]
) -> None:
    offer(peers, "prices", "month")
    await register(scheduler, *types)
    assert await warnings_for(scheduler, "monht") == []


async def test_warning_says_when_entry_nodes_accept_no_inputs(scheduler: Client, peers: Peers) -> None:
    await register(scheduler, "delay")
    assert await warnings_for(scheduler, "month") == ['no entry node takes the input "month"; they take none']


async def test_no_warning_while_the_registry_is_down(scheduler: Client, peers: Peers) -> None:
    await register(scheduler, "prices")
    peers.registry.down = True
    assert await warnings_for(scheduler, "monht") == []


async def test_run_without_inputs_does_not_ask_the_registry(scheduler: Client, peers: Peers) -> None:
    offer(peers, "prices", "month")
    await register(scheduler, "prices")
    peers.registry.requested.clear()
    assert list((await scheduler.run_flow(wait=0)).warnings) == []
    assert peers.registry.requested == []


async def test_at_most_ten_warnings_are_returned(scheduler: Client, peers: Peers) -> None:
    offer(peers, "prices", "month")
    await register(scheduler, "prices")
    assert len(await warnings_for(scheduler, *(f"name{number}" for number in range(1000)))) == 10


async def test_bulk_warns_of_the_same_names_once(scheduler: Client, peers: Peers) -> None:
    offer(peers, "prices", "month")
    await register(scheduler, "prices")
    given = [{"monht": 1}, None, {"monht": 2}, {"month": 3}, {"x": 4, "monht": 4}, {"monht": 5, "x": 5}]
    items = [pb2.RunFlowItem(flow_id="f", inputs_json=json.dumps(each) if each else "") for each in given]
    items.insert(0, pb2.RunFlowItem(flow_id="none", inputs_json='{"monht": 0}'))
    response = await scheduler.stub.RunFlows(pb2.RunFlowsRequest(items=items))
    near = 'no entry node takes the input "monht"; did you mean "month"?'
    other = 'no entry node takes the input "x"; they take "month"'
    assert [list(each.warnings) for each in response.results] == [[], [near], [], [], [], [other, near], []]


async def test_bulk_warns_of_at_most_a_hundred_items(scheduler: Client, peers: Peers) -> None:
    offer(peers, "prices", "month")
    await register(scheduler, "prices")
    peers.registry.requested.clear()
    names = ["month", *(f"name{number}" for number in range(150))]
    items = [pb2.RunFlowItem(flow_id="f", inputs_json=json.dumps({name: 1})) for name in names]
    response = await scheduler.stub.RunFlows(pb2.RunFlowsRequest(items=items))
    assert [len(each.warnings) for each in response.results] == [0] + [1] * 100 + [0] * 50
    assert len(peers.registry.requested) <= 1


async def test_rerun_warns_of_its_own_inputs(scheduler: Client, peers: Peers) -> None:
    offer(peers, "prices", "month")
    await register(scheduler, "prices")
    cycle = (await scheduler.run_flow(inputs_json='{"symbol": 1}')).cycle
    failed = node_task_pb2.NodeTask(node_id="n0", run_id=cycle.run_id, status=node_task_pb2.NODE_TASK_STATUS_FAILED)
    peers.node_tasks.nodes["f", 0, 0] = [failed]
    again = pb2.RerunCycleRequest(flow_id="f", inputs_json='{"monht": 1}', request_id="once")
    for _ in range(2):
        response = await scheduler.stub.RerunCycle(again)
        assert response.cycle.run == 1
        assert list(response.warnings) == ['no entry node takes the input "monht"; did you mean "month"?']
