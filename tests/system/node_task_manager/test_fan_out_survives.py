"""Workers and node task managers are killed while a node runs over a list."""

import json
from typing import Literal

import pytest

from tests.system.node_task_manager.scheduler import Scheduler
from tests.system.node_task_manager.stack import Stack
from tests.system.node_task_manager.store_proxy import StoreProxy
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import component_pb2

COUNT = 30
FAN_OUT = "fan_out_tasks_"
"""The prefix of the store's name for the script that splits a list."""


def mapped(node_type: str, count: int, config: dict[str, object], max_parallel: int) -> component_pb2.Plan:
    """Return a plan of a list of numbers, a node that runs once for each, and one that collects what those emit."""
    node = component_pb2.PlanNode(node_id="item", node_type=node_type, config_json=json.dumps(config))
    node.fan_out.handle, node.fan_out.max_parallel = "value", max_parallel
    return component_pb2.Plan(
        digest=f"mapped-{node_type}-{max_parallel}",
        nodes=[
            component_pb2.PlanNode(node_id="list", node_type="spread", config_json=f'{{"count":{count}}}'),
            node,
            component_pb2.PlanNode(node_id="all", node_type="collect"),
        ],
        edges=[
            component_pb2.PlanEdge(source=0, source_handle="output", target=1, target_handle="value"),
            component_pb2.PlanEdge(source=1, source_handle="output", target=2, target_handle="values"),
        ],
    )


async def test_items_of_killed_worker_run_again_and_results_keep_order(stack: Stack) -> None:
    _, address = await stack.node_task_manager()
    killed = await stack.worker("killed", address, capacity=4)
    gate = stack.home / "gate"
    async with Scheduler(address) as scheduler:
        await scheduler.submit(mapped("gated", COUNT, {"gate": str(gate)}, 4), "flow")
        await until(lambda: len(stack.recorded("begun")) == 5, "the list and four items have begun")
        await stack.worker("heir", address)
        await killed.kill()
        again = {(f"flow:0:0:item:{at}", 2) for at in range(4)}
        await until(lambda: again <= set(stack.recorded("begun")), "the four have begun again")
        gate.touch()
        await scheduler.wait_until_finished("flow", nodes=3)
        # Each item emits the number of its attempt: those that the killed worker held were tried twice.
        assert await scheduler.output("flow", "all") == json.dumps([2] * 4 + [1] * (COUNT - 4), separators=(",", ":"))
    done = stack.recorded("done")
    assert {key for key, _ in done} >= {f"flow:0:0:item:{at}" for at in range(COUNT)}
    assert set(done.values()) == {1}


@pytest.mark.parametrize("held_back", ["calls", "answers"])
async def test_list_is_split_once_though_node_task_manager_is_killed_meanwhile(
    stack: Stack, held_back: Literal["calls", "answers"]
) -> None:
    async with StoreProxy(stack.store.port, FAN_OUT, held_back) as proxy:
        killed, address = await stack.node_task_manager(store_url=stack.url_through(proxy.port))
        await stack.worker("worker", address)
        async with Scheduler(address) as scheduler:
            await scheduler.submit(mapped("step", COUNT, {}, 5), "flow")
            await proxy.mark_seen.wait()

            async def split() -> bool:
                found = await stack.as_admin("HGET", "trading_flow:{s0}:run:flow:0:0", "item:items_total")
                return bool(found) == (held_back == "answers")

            await until(split, "the call has come through, or has not")
            await killed.kill()
            await stack.node_task_manager(port=int(address.rpartition(":")[2]))
            await scheduler.wait_until_finished("flow", nodes=3)
            assert await scheduler.output("flow", "all") == json.dumps(list(range(1, COUNT + 1)), separators=(",", ":"))
    # Every item ran, those of a lost assignment perhaps in their second attempt, and none ended twice.
    ended = [key for key, _ in stack.recorded("done") if ":item:" in key]
    assert sorted(ended) == sorted(f"flow:0:0:item:{at}" for at in range(COUNT))


async def test_items_resume_after_node_task_manager_is_killed(stack: Stack) -> None:
    killed, address = await stack.node_task_manager()
    await stack.worker("worker", address, capacity=40)
    flows = [f"f{at}" for at in range(5)]
    async with Scheduler(address) as scheduler:
        await scheduler.submit(mapped("step", 100, {"seconds": 0.02}, 8), *flows)
        await until(lambda: len(stack.recorded("done")) > 150, "items are under way")
        await killed.kill()
        await stack.node_task_manager(port=int(address.rpartition(":")[2]))
        await scheduler.wait_until_finished(*flows, nodes=3)
        wanted = json.dumps(list(range(1, 101)), separators=(",", ":"))
        assert {await scheduler.output(flow, "all") for flow in flows} == {wanted}
    ended = [key for key, _ in stack.recorded("done") if ":item:" in key]
    assert len(ended) == len(set(ended)) == 500
