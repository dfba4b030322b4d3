"""A scheduler dies at any call while it runs a cycle for a node of another flow; the next scheduler goes on.

The stores are those in memory; the stores in Redis are tested against them elsewhere.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from tests.unit.scheduler.memory_scheduler import MemoryScheduler
from tradewind.node_task_manager.domain import sub_flow as at_nodes
from tradewind.node_task_manager.domain.component import RunSubmission
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.names import RunName as NodesRunName
from tradewind.node_task_manager.domain.node_task import NodeTask, TaskError
from tradewind.node_task_manager.domain.plan import Plan, PlanNode
from tradewind.node_task_manager.domain.waiting import Wait
from tradewind.node_task_manager.stores.memory import MemoryShard
from tradewind.scheduler.domain.beginning import BeginAnswer, BeginOutcome
from tradewind.scheduler.domain.chain_state import STATUS, ChainState, CycleOrigin
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.parent import Parent
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.run_update import RunUpdate
from tradewind.scheduler.domain.sub_flow import SubFlowEvent, SubFlowReport, SubFlowWait
from tradewind.scheduler.loops.event_queue import handle_patiently
from tradewind.scheduler.ports.peers import PeerUnavailable
from tradewind.scheduler.use_cases.return_ends import ReturnEnds
from tradewind.scheduler.use_cases.run_cycles import RunCycles
from tradewind.scheduler.use_cases.sub_flows import SubFlows
from tradewind.server.partitions import PARTITIONS

EVERYWHERE = range(PARTITIONS)
MAX_CALLS = 40


class Killed(Exception):
    """The process has died."""


class KillableProxy:
    """Passes calls on to `target`; `dies` says for each call whether the process dies before it or after its effect."""

    def __init__(self, target: Any, dies: Callable[[], str]) -> None:
        self._target, self._dies = target, dies

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)
        return self._wrapped(method)

    async def __call__(self, *args: Any, **more: Any) -> Any:
        return await self._wrapped(self._target)(*args, **more)

    def _wrapped(self, method: Any) -> Any:
        async def call(*args: Any, **more: Any) -> Any:
            when = self._dies()
            if when == "away":
                raise PeerUnavailable("node task manager", "it is being restarted")
            if when == "before":
                raise Killed
            answer = await method(*args, **more)
            if when == "after":
                raise Killed
            return answer

        return call


class Nodes:
    """The waiting nodes of a node task manager in memory, as the scheduler sees them."""

    def __init__(self, shard: MemoryShard) -> None:
        self.shard = shard

    async def task(self) -> NodeTask:
        (task,) = await self.shard.tasks(["above:0:0:sub"], outputs=True)
        assert task is not None
        return task

    async def inputs(self, run: RunName, user_id: str, nodes: Sequence[str]) -> list[SubFlowWait]:
        task = await self.task()
        if task.wait is None:
            return []
        child = RunName.parse(task.child) if task.child else None
        return [SubFlowWait("sub", "above-run", task.attempt, "f", child, '{"x":1}', 7)]

    async def waits(self, run: RunName, user_id: str) -> AsyncIterator[SubFlowWait]:
        for wait in await self.inputs(run, user_id, ["sub"]):
            yield replace(wait, inputs_json="")

    async def report(self, reports: Sequence[SubFlowReport]) -> list[bool]:
        effects = await self.shard.report_sub_flows([self._report(each) for each in reports])
        return [not result for result in effects.results]

    @staticmethod
    def _report(each: SubFlowReport) -> at_nodes.SubFlowReport:
        kind = at_nodes.ReportKind.BEGUN
        if each.error_code or each.output_json:
            kind = at_nodes.ReportKind.FAILED if each.error_code else at_nodes.ReportKind.COMPLETED
        error = TaskError(each.error_code, each.error) if each.error_code else None
        child = str(each.child) if each.child else ""
        parent = each.parent
        return at_nodes.SubFlowReport(
            parent.task_id, parent.run_id, parent.attempt, kind, child, each.output_json, error, each.final
        )


class World:
    """A run of flow `above` whose node `sub` waits for a cycle of flow `f`; schedulers come and go."""

    def __init__(self) -> None:
        self.scheduler = MemoryScheduler()
        self.nodes = Nodes(MemoryShard(Limits(), self.scheduler.clock))
        self.stopped: list[RunName] = []
        self.being_stopped = self.most_being_stopped = 0
        self.parent: ChainState | None = None

    async def begin(self) -> SubFlowEvent:
        await self.scheduler.register("f")
        await self.scheduler.register("above")
        self.parent = (await self.scheduler.run("above", run_id="above-run")).state
        plan = Plan("plan", (PlanNode("sub", "flow", wait=Wait(flow_id="f")),), ())
        await self.nodes.shard.save(plan)
        run = RunSubmission(NodesRunName("above", 0, 0), "above-run", "default", (("0", "plan"),), partition=0)
        await self.nodes.shard.submit([run])
        return SubFlowEvent(RunName("above", 0), "above-run", "default", "sub", None, 0, 0, "1")

    def sub_flows(self, dies: Callable[[], str]) -> tuple[SubFlows, ReturnEnds]:
        """Return the objects with which a new scheduler handles sub-flows."""
        of, nodes = self.scheduler, KillableProxy(self.nodes, dies)
        nodes.__dict__["waits"] = self.nodes.waits
        stores = of.stores
        begin = KillableProxy(of.begin, dies)
        hand_over: Any = KillableProxy(of.hand_over, dies)
        hand_over.__dict__["begin"] = of.hand_over.begin
        ends: Any = SimpleNamespace(abandon=list)
        run = RunCycles(begin, hand_over, ends, stores.states, of.definitions)  # type: ignore[arg-type]
        states: Any = KillableProxy(stores.states, dies)
        returned = ReturnEnds(KillableProxy(stores.returns, dies), states, of.definitions, self._outputs, nodes, nodes)  # type: ignore[arg-type]
        flows: Any = KillableProxy(stores.flows, dies)
        return SubFlows(nodes, flows, states, run, self._stop, returned), returned  # type: ignore[arg-type]

    async def _outputs(self, runs: Sequence[Any]) -> list[Any]:
        return [[("n0", [("output", "42")])] for _ in runs]

    async def _stop(self, flow_id: str, cycle: int, run: int, by: str, reason: str, *, once: bool, wait: bool) -> None:
        self.being_stopped += 1
        self.most_being_stopped = max(self.most_being_stopped, self.being_stopped)
        await asyncio.sleep(0)
        self.being_stopped -= 1
        self.stopped.append(RunName(flow_id, cycle, run))

    async def children(self) -> list[ChainState]:
        return await self.scheduler.stores.cycles.newest("f", None, 10)

    async def end(self, status: CycleStatus) -> None:
        """End the cycle of `f`."""
        (child,) = await self.children()
        await self.scheduler.stores.states.update_many([RunUpdate(structs.replace(child, status=status), (STATUS,))])


def at_call(fatal: int, when: str) -> Callable[[], str]:
    """Die at this call."""
    numbers = itertools.count()
    return lambda: when if next(numbers) == fatal else ""


def never() -> str:
    """Never die."""
    return ""


async def survived(act: Any) -> bool:
    try:
        await act
    except Killed:
        return False
    return True


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("heard_again", [True, False])
async def test_scheduler_killed_while_beginning_the_child_cycle(when: str, heard_again: bool) -> None:
    for fatal in range(MAX_CALLS):
        world = World()
        event = await world.begin()
        first, _ = world.sub_flows(at_call(fatal, when))
        alive = await survived(first.handle([event]))
        second, _ = world.sub_flows(never)
        assert world.parent is not None
        # Either the event comes again, or it is lost and the run is looked after.
        await (second.handle([event]) if heard_again else second.check(world.parent))
        (child,) = await world.children()
        assert child.facts.parent is not None
        assert (child.facts.parent.task_id, child.facts.inputs_json) == ("above:0:0:sub", '{"x":1}')
        task = await world.nodes.task()
        assert (task.status, task.child, task.attempt) == ("suspended", "f:0:0", 1)
        assert world.stopped == []
        if alive:
            assert fatal > 3
            return
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("ending", "became"), [(CycleStatus.COMPLETED, "completed"), (CycleStatus.TIMEOUT, "failed")])
async def test_scheduler_killed_while_reporting_the_end(when: str, ending: CycleStatus, became: str) -> None:
    for fatal in range(MAX_CALLS):
        world = World()
        event = await world.begin()
        sub_flows, _ = world.sub_flows(never)
        await sub_flows.handle([event])
        await world.end(ending)
        _, first = world.sub_flows(at_call(fatal, when))
        alive = await survived(first(EVERYWHERE))
        _, second = world.sub_flows(never)
        await second(EVERYWHERE)
        task = await world.nodes.task()
        outputs = (("output", '{"n0":{"output":42}}'),) if became == "completed" else ()
        assert (task.status, task.outputs) == (became, outputs)
        assert await world.scheduler.stores.returns.waiting(EVERYWHERE, 10) == []
        assert len(await world.children()) == 1
        if alive:
            assert fatal > 3
            return
    raise AssertionError("it never came to an end")


async def test_unavailable_node_task_manager_is_retried() -> None:
    for fatal in range(MAX_CALLS):
        world = World()
        event = await world.begin()
        numbers = itertools.count()
        sub_flows, _ = world.sub_flows(lambda fatal=fatal, numbers=numbers: "away" if next(numbers) == fatal else "")  # type: ignore[misc]
        await handle_patiently(sub_flows.handle, [event], "nodes that run flows")
        (child,) = await world.children()
        assert (await world.nodes.task()).child == str(child.name)
        if next(numbers) <= fatal:
            return
    raise AssertionError("it never came to an end")


async def test_lost_end_of_a_child_is_reported_by_the_next_check() -> None:
    world = World()
    sub_flows, _ = world.sub_flows(never)
    await sub_flows.handle([await world.begin()])
    await world.end(CycleStatus.COMPLETED)
    await world.scheduler.stores.returns.remove(await world.scheduler.stores.returns.waiting(EVERYWHERE, 10))
    assert world.parent is not None
    await sub_flows.check(world.parent)
    assert (await world.nodes.task()).status == "completed"


async def test_child_cycle_without_waiting_node_is_stopped_by_the_next_check() -> None:
    world = World()
    sub_flows, _ = world.sub_flows(never)
    await sub_flows.handle([await world.begin()])
    await sub_flows.stop_unwanted(await world.children())
    assert world.stopped == []
    await world.nodes.shard.terminate("above:0:0:sub", "0", 0, "enough", "ann")
    await sub_flows.stop_unwanted(await world.children())
    assert world.stopped == [RunName("f", 0, 0)]


async def test_removed_child_cycle_fails_its_node() -> None:
    world = World()
    sub_flows, _ = world.sub_flows(never)
    await sub_flows.handle([await world.begin()])
    stores = world.scheduler.stores
    stores.data.remove_run(stores.data.flows["f"], RunName("f", 0))
    assert world.parent is not None
    await sub_flows.check(world.parent)
    task = await world.nodes.task()
    assert task.error == TaskError("SUB_FLOW_FAILED", 'cycle 0 of flow "f" is no longer on record')


async def test_flow_of_another_user_is_not_run() -> None:
    world = World()
    event = await world.begin()
    world.scheduler.stores.data.flows["f"].user_id = "eve"
    sub_flows, _ = world.sub_flows(never)
    await sub_flows.handle([event])
    task = await world.nodes.task()
    assert task.error is not None
    assert "belongs to somebody else" in task.error.message
    assert await world.children() == []


async def test_node_waits_while_its_flow_keeps_changing_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    event = await world.begin()
    sub_flows, _ = world.sub_flows(never)

    async def always_another(requests: Sequence[Any], epochs: Any) -> list[BeginAnswer]:
        return [BeginAnswer(BeginOutcome.REVISION_CHANGED) for _ in requests]

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(world.scheduler.stores.cycles, "begin", always_another)
        await sub_flows.handle([event])
    task = await world.nodes.task()
    assert (task.status, task.error, task.attempt) == ("suspended", None, 1)
    assert world.parent is not None
    await sub_flows.check(world.parent)
    assert (await world.nodes.task()).child == "f:0:0"


async def test_cycles_that_nobody_waits_for_are_stopped_a_hundred_at_once() -> None:
    world = World()
    await world.begin()
    names, events = [], []
    for at in range(150):
        parent = Parent(RunName("above", 0), "above-run", f"sub:{at}", 1)
        names.append((await world.scheduler.run("f", origin=CycleOrigin.SUB_FLOW, parent=parent)).state.name)
        events.append(SubFlowEvent(parent.run, parent.run_id, "default", parent.node, names[-1], 0, 0, str(at)))
    sub_flows, _ = world.sub_flows(never)
    await sub_flows.handle(events)
    assert world.stopped == names
    assert world.most_being_stopped == 100
