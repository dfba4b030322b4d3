"""A scheduler is killed after each write and each answer that it gets; another takes over, and everything happens once.

Deaths thus fall between the phases of a cycle with handlers, and between the steps of bulk jobs.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.system.crashing import World, run_in_world
from tradewind.client import BulkJobStatus, CycleStatus, NotFound
from tradewind.flow import Flow
from tradewind.worker import Context, Node, node

MAX_STEPS = 200


class Ledger:
    """Counts what ran, and has the nodes that write into it."""

    def __init__(self, *failing: str) -> None:
        self.ran: Counter[str] = Counter()
        self.outcomes: list[str] = []
        self.failing = set(failing)

    @property
    def nodes(self) -> list[Node[..., Any]]:
        @node("work")
        async def work(ctx: Context, after: int | str | None = None) -> int:
            name = f"{ctx.flow_id}:{ctx.cycle}:{ctx.node_id}"
            self.ran[name] += 1
            if ctx.node_id in self.failing:
                raise ValueError("it is down")
            return 1

        @node("report_outcome")
        async def report_outcome(ctx: Context, outcome: dict[str, Any]) -> str:
            self.ran[ctx.node_id] += 1
            self.outcomes.append(outcome["status"])
            return str(outcome["status"])

        @node("long")
        async def long(ctx: Context) -> int:
            self.ran[f"{ctx.flow_id}:{ctx.cycle}:{ctx.node_id}"] += 1
            await asyncio.sleep(3600)
            return 1

        return [work, report_outcome, long]


def guarded(main: str = "work") -> Flow:
    """Return a flow with node main; page runs on failure; close -> last run at the end."""
    flow = Flow("f", "1h")
    flow.node("main", main)
    flow.on_failure(flow.node("page", "report_outcome"))
    close, last = flow.node("close", "report_outcome"), flow.node("last", "work")
    close["output"] >> last["after"]
    flow.finally_(close, last)
    return flow


def crash_at_each_step(begin: Callable[[], tuple[Ledger, Callable[[World], Awaitable[None]]]], min_steps: int) -> None:
    """Repeat a scenario, with the scheduler dying one step later each time, until it survives to the end."""
    for step in range(1, MAX_STEPS):
        ledger, scenario = begin()
        if not run_in_world(scenario, ledger.nodes, step):
            assert step > min_steps, "it was killed too seldom to show anything"
            return
    raise AssertionError("it does not come to an end")


@pytest.mark.parametrize("fails", [True, False])
def test_handlers_run_once(fails: bool) -> None:
    def begin() -> tuple[Ledger, Callable[[World], Awaitable[None]]]:
        ledger = Ledger(*(["main"] if fails else []))

        async def scenario(world: World) -> None:
            await world.client.register_flow("f", guarded())
            world.scheduler.counting = True
            ended = await (await world.client.run_flow("f")).wait()
            assert ended.status is (CycleStatus.FAILED if fails else CycleStatus.COMPLETED)
            assert (ended.cycle, ended.run, ended.phase) == (0, 0, "over")
            assert ledger.ran == Counter(["f:0:main", "close", "f:0:last", *(["page"] if fails else [])])
            assert set(ledger.outcomes) == {"failed" if fails else "completed"}
            assert [cycle.cycle async for cycle in world.client.list_cycles("f")] == [0]

        return ledger, scenario

    crash_at_each_step(begin, 10)


def test_stop_is_carried_out_and_finally_nodes_run_once() -> None:
    def begin() -> tuple[Ledger, Callable[[World], Awaitable[None]]]:
        ledger = Ledger()

        async def scenario(world: World) -> None:
            await world.client.register_flow("f", guarded("long"))
            handle = await world.client.run_flow("f")
            await asyncio.sleep(60)
            world.scheduler.counting = True
            await world.client.stop_cycle("f", reason="enough")
            ended = await handle.wait()
            assert ended.status is CycleStatus.CANCELLED
            assert ledger.ran == Counter(["f:0:main", "close", "f:0:last"])
            assert ledger.outcomes == ["cancelled"]

        return ledger, scenario

    crash_at_each_step(begin, 8)


def test_bulk_rerun_repeats_each_cycle_once() -> None:
    def begin() -> tuple[Ledger, Callable[[World], Awaitable[None]]]:
        ledger = Ledger("b")

        async def scenario(world: World) -> None:
            for flow_id in ("f1", "f2"):
                flow = Flow(flow_id, "1h")
                flow.node("a", "work")["output"] >> flow.node("b", "work")["after"]
                await world.client.register_flow(flow_id, flow)
                for _ in range(2):
                    assert (await (await world.client.run_flow(flow_id)).wait()).status is CycleStatus.FAILED
            ledger.failing.clear()
            world.scheduler.counting = True
            job = await world.client.start_bulk_job("rerun", ["f*"], reason="mended", request_id="once")
            ended = await world.client.wait_bulk_job(job.job_id, 600)
            assert ended.status is BulkJobStatus.COMPLETED
            assert (ended.matched, ended.done, ended.failed, ended.items) == (4, 4, 0, ())
            for flow_id in ("f1", "f2"):
                for cycle in range(2):
                    again = await world.client.cycle(flow_id, cycle, 1).wait()
                    assert again.status is CycleStatus.COMPLETED
                    assert (ledger.ran[f"{flow_id}:{cycle}:a"], ledger.ran[f"{flow_id}:{cycle}:b"]) == (1, 2)
                    with pytest.raises(NotFound):
                        await world.client.get_cycle(flow_id, cycle, 2)

        return ledger, scenario

    crash_at_each_step(begin, 20)


def test_bulk_stop_stops_each_cycle() -> None:
    def begin() -> tuple[Ledger, Callable[[World], Awaitable[None]]]:
        ledger = Ledger()

        async def scenario(world: World) -> None:
            flow = Flow("f", "1h", overlap="allow")
            flow.node("a", "long")
            await world.client.register_flow("f", flow)
            handles = [await world.client.run_flow("f") for _ in range(3)]
            await asyncio.sleep(60)
            world.scheduler.counting = True
            job = await world.client.start_bulk_job("stop", ["f"], reason="enough", request_id="once")
            ended = await world.client.wait_bulk_job(job.job_id, 600)
            assert (ended.status, ended.matched, ended.done, ended.failed) == (BulkJobStatus.COMPLETED, 3, 3, 0)
            for handle in handles:
                cycle = await handle.wait()
                assert cycle.status is CycleStatus.CANCELLED
                assert cycle.stop is not None
                assert (cycle.stop.by, cycle.stop.reason) == (f"default ({job.job_id})", "enough")
            assert ledger.ran == Counter(f"f:{cycle}:a" for cycle in range(3))

        return ledger, scenario

    crash_at_each_step(begin, 10)
