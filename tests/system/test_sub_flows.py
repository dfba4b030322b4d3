"""Flows that run other flows: in a simulation, where waiting costs nothing, and over a whole stack."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.system.processes import Shell
from tests.waiting import until
from tradewind.client import Client, CycleOrigin, CycleStatus, FlowStatus, InvalidInput, NodeTaskStatus
from tradewind.flow import Flow, Retry, Timeouts
from tradewind.testing import VirtualStack, simulate
from tradewind.worker import Context, Fatal, Node, node


@node("double")
async def double(x: int) -> int:
    return 2 * x


@node("slow")
async def slow(ctx: Context, seconds: float = 3600) -> int:
    await asyncio.sleep(seconds)
    return ctx.cycle


@node("unlucky")
async def unlucky(ctx: Context, until_cycle: int = 99) -> int:
    if ctx.cycle < until_cycle:
        raise Fatal("no luck")
    return ctx.cycle


@node("listing")
async def listing(ctx: Context) -> list[dict[str, int]]:
    return [{"n": n} for n in range(5)]


@node("gives")
async def explicit_result(ctx: Context) -> int:
    await ctx.set_result({"sum": 12})
    return 1


NODES: list[Node[..., Any]] = [double, slow, unlucky, listing, explicit_result]


def single_node_flow(
    flow_id: str, node_type: Any, config: dict[str, Any] | None = None, interval: str = "1h", **fields: Any
) -> Flow:
    """Return a flow with a single node, `only`."""
    flow = Flow(flow_id, interval, **fields)
    flow.node("only", node_type, config, timeout=0)
    return flow


def parent_of(child: str, flow_id: str = "parent", **fields: Any) -> Flow:
    """Return a flow whose only node, `sub`, runs another flow."""
    flow = Flow(flow_id, "1h")
    flow.sub_flow("sub", child, **fields)
    return flow


def run_simulated(main: Callable[[VirtualStack], Awaitable[Any]], *flows: Flow) -> Any:
    """Register flows and run `main` in a simulation."""

    async def register_and_run(stack: VirtualStack) -> Any:
        for flow in flows:
            await stack.client.register_flow(flow.flow_id, flow)
        return await main(stack)

    return simulate(register_and_run, NODES)


def test_sub_flow_receives_inputs_and_returns_outputs() -> None:
    parent = Flow("parent", "1h")
    number = parent.node("number", double, {"x": 5})
    sub = parent.sub_flow("sub", "child", {"x": 1, "unused": [1, "a"]})
    number["output"] >> sub["x"]

    async def main(stack: VirtualStack) -> None:
        client = stack.client
        assert await (await client.run_flow("parent")).result(60) == {"sub": {"output": {"only": {"output": 20}}}}
        found = (await client.describe_cycle("parent")).node("sub")
        assert found is not None
        assert found.sub_flow is not None
        assert (found.sub_flow.flow_id, found.sub_flow.cycle, found.attempt) == ("child", 0, 1)
        cycle = (await client.describe_cycle("child")).cycle
        assert (cycle.origin, str(cycle.parent)) == (CycleOrigin.SUB_FLOW, "parent:0:0:sub")
        assert cycle.inputs == {"x": 10, "unused": [1, "a"]}

    run_simulated(main, single_node_flow("child", double, {"x": 3}), parent)


def test_run_inputs_reach_nested_sub_flows() -> None:
    async def main(stack: VirtualStack) -> None:
        handle = await stack.client.run_flow("top", {"x": 21})
        child = {"only": {"output": 42}}
        assert await handle.result(60) == {"sub": {"output": {"sub": {"output": child}}}}
        cycle = (await stack.client.describe_cycle("child")).cycle
        assert cycle.parent is not None
        assert cycle.parent.depth == 2

    run_simulated(main, single_node_flow("child", double, {"x": 3}), parent_of("child"), parent_of("parent", "top"))


def test_error_names_failed_cycle_and_retry_runs_a_new_one() -> None:
    async def main(stack: VirtualStack) -> None:
        client = stack.client
        ended = await (await client.run_flow("parent")).wait(600)
        assert ended.status is CycleStatus.COMPLETED
        found = await client.get_node_task("parent:0:0:sub")
        assert (found.attempt, found.failures) == (3, 2)
        assert found.sub_flow is not None
        assert found.sub_flow.cycle == 2
        assert found.last_error is not None
        assert found.last_error.code == "SUB_FLOW_FAILED"
        assert 'cycle 1 of flow "child" ended as failed' in found.last_error.message

    child = single_node_flow("child", unlucky, {"until_cycle": 2})
    run_simulated(main, child, parent_of("child", retry=Retry(5, initial="1s")))


def test_failed_cycle_fails_node() -> None:
    async def main(stack: VirtualStack) -> None:
        described = await (await stack.client.run_flow("parent")).wait(60)
        assert described.status is CycleStatus.FAILED
        (failure,) = (await stack.client.describe_cycle("parent")).failures
        error_text = (
            'cycle 0 of flow "child" ended as failed: 1 failed of 1 node; node "only": NODE_ERROR: Fatal: no luck'
        )
        assert str(failure) == f"sub (flow) failed: SUB_FLOW_FAILED: {error_text}"

    run_simulated(main, single_node_flow("child", unlucky), parent_of("child"))


def test_failure_of_nested_sub_flow_is_reported_at_the_top() -> None:
    async def main(stack: VirtualStack) -> None:
        await (await stack.client.run_flow("top")).wait(60)
        (failure,) = (await stack.client.describe_cycle("top")).failures
        assert 'node "sub": SUB_FLOW_FAILED: cycle 0 of flow "child"' in str(failure)
        assert str(failure).endswith('node "only": NODE_ERROR: Fatal: no luck')

    run_simulated(main, single_node_flow("child", unlucky), parent_of("child"), parent_of("parent", "top"))


def test_error_shows_only_first_failures() -> None:
    child = Flow("child", "1h")
    for number in range(5):
        child.node(f"n{number}", unlucky)

    async def main(stack: VirtualStack) -> None:
        await (await stack.client.run_flow("parent")).wait(60)
        (failure,) = (await stack.client.describe_cycle("parent")).failures
        assert "5 failed of 5 nodes" in str(failure)
        assert str(failure).count("Fatal: no luck") == 3

    run_simulated(main, child, parent_of("child"))


def test_stop_of_parent_stops_sub_flow_and_stop_of_sub_flow_fails_node() -> None:
    async def main(stack: VirtualStack) -> None:
        client = stack.client
        handle = await client.run_flow("parent")
        await stack.run_for(seconds=10)
        await client.stop_cycle("parent", 0, reason="enough")
        assert (await handle.wait(60)).status is CycleStatus.CANCELLED
        await stack.run_for(seconds=10)
        child = await client.get_cycle("child", 0)
        assert child.status is CycleStatus.CANCELLED
        assert child.stop is not None
        assert "parent:0:0:sub" in child.stop.reason
        assert [note async for note in client.list_notifications()] == []
        handle = await client.run_flow("parent")
        await stack.run_for(seconds=10)
        await client.stop_cycle("child", 1, reason="not now")
        assert (await handle.wait(60)).status is CycleStatus.FAILED
        error = (await client.get_node_task("parent:1:0:sub")).error
        assert error is not None
        assert 'cycle 1 of flow "child" ended as cancelled' in error.message

    run_simulated(main, single_node_flow("child", slow), parent_of("child"))


def test_timeouts_of_parent_end_sub_flow_cycle() -> None:
    timed = parent_of("child", "timed", timeouts=Timeouts(total="20s"))
    short = Flow("short", "1h", timeout="20s")
    short.sub_flow("sub", "child")

    async def main(stack: VirtualStack) -> None:
        client = stack.client
        assert (await (await client.run_flow("timed")).wait(60)).status is CycleStatus.FAILED
        error = (await client.get_node_task("timed:0:0:sub")).error
        assert error is not None
        assert error.code == "TOTAL_TIMEOUT"
        assert (await (await client.run_flow("short")).wait(60)).status is CycleStatus.TIMEOUT
        await stack.run_for(seconds=60)
        ended = [cycle.status async for cycle in client.list_cycles("child")]
        assert ended == [CycleStatus.CANCELLED, CycleStatus.CANCELLED]

    run_simulated(main, single_node_flow("child", slow), timed, short)


def test_a_mapped_node_runs_a_cycle_for_each_item() -> None:
    parent = Flow("parent", "1h")
    items = parent.node("items", listing)
    sub = parent.sub_flow("sub", "child", {"x": 4}, map="item", max_parallel=2)
    items["output"] >> sub["item"]

    async def main(stack: VirtualStack) -> None:
        result = await (await stack.client.run_flow("parent")).result(600)
        assert result == {"sub": {"output": [{"only": {"output": 8}}] * 5}}
        cycles = [cycle async for cycle in stack.client.list_cycles("child")]
        assert sorted(cycle.inputs["item"]["n"] for cycle in cycles) == [0, 1, 2, 3, 4]
        assert {cycle.parent.node_id for cycle in cycles if cycle.parent} == {f"sub:{at}" for at in range(5)}

    run_simulated(main, single_node_flow("child", double), parent)


def test_sub_flow_cycle_and_scheduled_cycles_may_overlap() -> None:
    async def main(stack: VirtualStack) -> None:
        client = stack.client
        await client.start_flow("child")
        await stack.run_for(seconds=10)
        handle = await client.run_flow("parent")
        await stack.run_for(seconds=23)
        started = {cycle.cycle: (cycle.origin, cycle.status) async for cycle in client.list_cycles("child")}
        # It began beside the schedule's first cycle, and the schedule's second cycle began beside it.
        assert started == {
            0: (CycleOrigin.SCHEDULE, CycleStatus.COMPLETED),
            1: (CycleOrigin.SUB_FLOW, CycleStatus.RUNNING),
            2: (CycleOrigin.SCHEDULE, CycleStatus.RUNNING),
        }
        assert (await handle.wait(60)).status is CycleStatus.COMPLETED

    run_simulated(main, single_node_flow("child", slow, {"seconds": 25}, "30s"), parent_of("child"))


def test_sub_flow_node_emits_explicit_result_of_cycle() -> None:
    async def main(stack: VirtualStack) -> None:
        assert await (await stack.client.run_flow("parent")).result(60) == {"sub": {"output": {"sum": 12}}}

    run_simulated(main, single_node_flow("child", explicit_result), parent_of("child"))


def test_overlap_policy_cancel_running_spares_sub_flow_cycle() -> None:
    async def main(stack: VirtualStack) -> None:
        client = stack.client
        await client.start_flow("child")
        await stack.run_for(seconds=15)
        handle = await client.run_flow("parent")
        await stack.run_for(seconds=20)
        # The next planned time has cancelled the schedule's first cycle, but not the node's cycle.
        statuses = {cycle.cycle: cycle.status async for cycle in client.list_cycles("child")}
        assert statuses == {0: CycleStatus.CANCELLED, 1: CycleStatus.RUNNING, 2: CycleStatus.RUNNING}
        assert (await handle.wait(60)).status is CycleStatus.COMPLETED
        assert [note async for note in client.list_notifications()] == [], "what makes way has not failed"

    run_simulated(
        main, single_node_flow("child", slow, {"seconds": 40}, "30s", overlap="cancel_running"), parent_of("child")
    )


def test_failed_sub_flow_cycle_does_not_pause_its_flow() -> None:
    async def main(stack: VirtualStack) -> None:
        client = stack.client
        await client.start_flow("child")
        await stack.run_for(minutes=1)
        assert (await (await client.run_flow("parent")).wait(60)).status is CycleStatus.FAILED
        assert (await client.get_flow("child")).flow.status is FlowStatus.RUNNING

    child = single_node_flow("child", unlucky, {"until_cycle": 9}, pause_after_failures=2)
    run_simulated(main, child, parent_of("child"))


def test_deleting_sub_flow_fails_node() -> None:
    async def main(stack: VirtualStack) -> None:
        client = stack.client
        handle = await client.run_flow("parent")
        await stack.run_for(seconds=10)
        await client.delete_flow("child", wait=60)
        assert (await handle.wait(600)).status is CycleStatus.FAILED
        error = (await client.get_node_task("parent:0:0:sub")).error
        assert error is not None
        assert error.code == "SUB_FLOW_FAILED"

    run_simulated(main, single_node_flow("child", slow), parent_of("child"))


def test_deleting_parent_flow_stops_sub_flow_cycle() -> None:
    async def main(stack: VirtualStack) -> None:
        client = stack.client
        await client.run_flow("parent")
        await stack.run_for(seconds=10)
        await client.delete_flow("parent", wait=60)
        assert (await client.cycle("child", 0).wait(600)).status is CycleStatus.CANCELLED

    run_simulated(main, single_node_flow("child", slow), parent_of("child"))


def test_finally_node_may_be_a_sub_flow_after_stop() -> None:
    parent = Flow("parent", "1h")
    parent.node("main", slow)
    parent.finally_(parent.sub_flow("sub", "child", {"x": 4}))

    async def main(stack: VirtualStack) -> None:
        client = stack.client
        handle = await client.run_flow("parent")
        await stack.run_for(seconds=10)
        await client.stop_cycle("parent", 0, reason="enough")
        assert (await handle.wait(600)).status is CycleStatus.CANCELLED
        child = await client.get_cycle("child", 0)
        assert (child.status, child.inputs["outcome"]["status"]) == (CycleStatus.COMPLETED, "cancelled")

    run_simulated(main, single_node_flow("child", double), parent)


def test_results_arrive_though_sub_flow_keeps_one_cycle() -> None:
    parent = Flow("parent", "1h")
    parent.node("items", listing)["output"] >> parent.sub_flow("sub", "child", {"x": 4}, map="item")["item"]

    async def main(stack: VirtualStack) -> None:
        result = await (await stack.client.run_flow("parent")).result(600)
        assert result == {"sub": {"output": [{"only": {"output": 8}}] * 5}}

    run_simulated(main, single_node_flow("child", double, keep_cycles=1), parent)


def test_unknown_sub_flow_warns_at_registration_and_fails_node_at_run() -> None:
    async def main(stack: VirtualStack) -> None:
        client = stack.client
        registered = await client.register_flow("parent", parent_of("child"))
        assert [str(warning) for warning in registered.warnings] == [
            'nodes[0].config.flow_id: flow "child" is not registered; the node fails until it is'
        ]
        assert (await (await client.run_flow("parent")).wait(60)).status is CycleStatus.FAILED
        error = (await client.get_node_task("parent:0:0:sub")).error
        assert error is not None
        assert 'flow "child" is not registered; register it' in error.message
        await client.register_flow("child", single_node_flow("child", double, {"x": 2}))
        assert (await (await client.rerun_cycle("parent", 0)).wait(60)).status is CycleStatus.COMPLETED

    run_simulated(main)


def test_recursive_flow_is_refused_with_its_path() -> None:
    async def main(stack: VirtualStack) -> None:
        client = stack.client
        await client.register_flow("a", parent_of("b", "a"))
        await client.register_flow("b", parent_of("c", "b"))
        with pytest.raises(InvalidInput) as refused:
            await client.register_flow("c", parent_of("a", "c"))
        assert "c -> a -> b -> c" in str(refused.value)
        with pytest.raises(InvalidInput, match="d -> d"):
            await client.register_flow("d", parent_of("d", "d"))
        await client.register_flow("c", single_node_flow("c", double, {"x": 1}))
        # Not by an older revision either; the dry run refuses too.
        await client.register_flow("e", parent_of("f", "e"))
        await client.register_flow("e", single_node_flow("e", double, {"x": 1}))
        await client.register_flow("f", parent_of("e", "f"))
        with pytest.raises(InvalidInput, match="e -> f -> e"):
            await client.roll_back_flow("e", 1)
        plan = await client.plan_flow("e", parent_of("f", "e"))
        assert ["e -> f -> e" in str(each) for each in plan.violations] == [True]

    run_simulated(main)


def test_sub_flows_nest_at_most_eight_deep() -> None:
    chain = [single_node_flow("f9", double, {"x": 1}), *(parent_of(f"f{at + 1}", f"f{at}") for at in range(8, -1, -1))]

    async def main(stack: VirtualStack) -> None:
        assert (await (await stack.client.run_flow("f1")).wait(60)).status is CycleStatus.COMPLETED
        assert (await (await stack.client.run_flow("f0")).wait(60)).status is CycleStatus.FAILED
        error = (await stack.client.get_node_task("f8:1:0:sub")).error
        assert error is not None
        assert "at most 8 levels deep" in error.message

    run_simulated(main, *chain)


def test_rerun_keeps_sub_flow_result() -> None:
    parent = Flow("parent", "1h")
    sub = parent.sub_flow("sub", "child")
    sub["output"] >> parent.node("after", unlucky)["until_cycle"]

    async def main(stack: VirtualStack) -> None:
        client = stack.client
        assert (await (await client.run_flow("parent")).wait(60)).status is CycleStatus.FAILED
        await (await client.rerun_cycle("parent", 0)).wait(60)
        assert len([cycle async for cycle in client.list_cycles("child")]) == 1
        kept = await client.get_node_task("parent:0:1:sub")
        assert (kept.status, kept.kept_from) == (NodeTaskStatus.COMPLETED, "parent:0:0:sub")

    run_simulated(main, single_node_flow("child", double, {"x": 2}), parent)


async def test_commands_show_links_between_parent_and_sub_flow_cycles(client: Client, shell: Shell) -> None:
    await client.register_flow("child", single_node_flow("child", "payment", {"sum": 5}))
    await client.register_flow("parent", parent_of("child"))
    handle = await client.run_flow("parent")

    async def waits() -> bool:
        task = await client.get_node_task("parent:0:0:sub")
        return task.sub_flow is not None

    await until(waits, "the child cycle has begun")
    assert re.search(
        r'sub +flow +suspended +1 .*waits for cycle 0 of flow "child"', await shell("cycle", "show", "parent")
    )
    assert 'waits for cycle 0 of flow "child"' in await shell("explain", "parent", "0", "sub")
    assert "runs for node sub of parent cycle 0 run 0" in await shell("cycle", "show", "child")
    assert "runs flow child" in await shell("flow", "graph", "parent")

    async def waits_for_signal() -> bool:
        return (await client.get_node_task("child:0:0:only")).status is NodeTaskStatus.SUSPENDED

    await until(waits_for_signal, "the child node waits")
    await client.signal_node("child:0:0:only", "paid", {"euros": 5})
    assert (await handle.wait(30)).status is CycleStatus.COMPLETED
    assert "ran cycle 0 of flow child" in await shell("cycle", "show", "parent")
