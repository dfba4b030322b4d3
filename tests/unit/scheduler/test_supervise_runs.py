"""Looking after runs: those that could not be submitted, that run, and that are to stop."""

from collections.abc import Collection, Sequence
from typing import Any

import pytest
from msgspec import structs

from tests.unit.scheduler.memory_scheduler import DirectNodeTasks, MemoryScheduler
from tradewind.scheduler.domain.chain_state import (
    REASON,
    STATUS,
    STOP,
    SUBMITTED,
    ChainState,
    ComponentEnd,
    StopRequest,
)
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.handlers import HANDLERS_MS, Phase
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.submission import ComponentView, StopOrder
from tradewind.scheduler.ports.peers import PeerUnavailable
from tradewind.scheduler.use_cases.supervise_runs import SuperviseRuns
from tradewind.server.partitions import partition_of

UNAVAILABLE = PeerUnavailable("node task manager", "down")
AFTERWARDS: dict[str, Any] = {"finally": ["n1"]}
"""Has the second node handle the outcome of the first."""


class EmptyNodeTasks(DirectNodeTasks):
    """A node task manager that holds nothing yet, and answers so even while it accepts nothing."""

    async def components(self, _runs: object) -> list[object]:
        return []


class RunningNodeTasks(DirectNodeTasks):
    """A node task manager that runs everything, and keeps the orders to stop: the components that they name."""

    def __init__(self, finished: Collection[str] = ()) -> None:
        super().__init__()
        self.orders: list[str] = []
        self.asked_at_once: list[int] = []
        self._finished = finished

    async def components(self, runs: Sequence[ChainState]) -> list[ComponentView]:
        self.asked_at_once.append(len(runs))
        return [
            ComponentView(run.name, run.facts.run_id, str(at), str(at) in self._finished, ComponentEnd(1))
            for run in runs
            for at in range(run.facts.component_count)
        ]

    async def stop(self, order: StopOrder) -> None:
        self.orders.append(order.component_id)


def supervise(scheduler: MemoryScheduler) -> SuperviseRuns:
    stores = scheduler.stores
    # No flow here runs another.
    no_sub_flows: Any = None
    return SuperviseRuns(
        stores.open_runs,
        stores.states,
        scheduler.node_tasks,
        scheduler.definitions,
        scheduler.hand_over,
        scheduler.fold,
        scheduler.open_states,
        no_sub_flows,
        scheduler.clock,
        30_000,
    )


async def test_check_fails_while_the_node_task_manager_is_unavailable() -> None:
    scheduler = MemoryScheduler(EmptyNodeTasks(outcomes=[UNAVAILABLE, UNAVAILABLE]))
    await scheduler.register()
    run = await scheduler.run()
    await scheduler.hand_over([run])
    scheduler.clock.advance(60_000)
    with pytest.raises(PeerUnavailable):
        await supervise(scheduler)([run.state.name], {})
    assert scheduler.stores.data.open[run.state.name] == scheduler.clock.now_ms() + 1000


async def test_runs_submitted_late_are_checked_again_after_two_seconds() -> None:
    scheduler = MemoryScheduler(EmptyNodeTasks(outcomes=[UNAVAILABLE]))
    await scheduler.register()
    runs = [await scheduler.run() for _ in range(3)]
    names = [run.state.name for run in runs]
    await scheduler.hand_over(runs)
    scheduler.clock.advance(60_000)
    await supervise(scheduler)(names, {})
    assert scheduler.node_tasks.asked[-1][0] == names
    assert [scheduler.stores.data.open[name] - scheduler.clock.now_ms() for name in names] == [2000] * 3


async def test_running_cycle_is_compared_every_30_seconds_and_every_2_while_it_is_to_stop() -> None:
    scheduler = MemoryScheduler(RunningNodeTasks())
    await scheduler.register()
    run = (await scheduler.run()).state
    state, submitted_ms = run, scheduler.clock.now_ms()
    for wait_ms in (0, 30_000):
        scheduler.clock.advance(wait_ms)
        await supervise(scheduler)([run.name], {})
        state = await scheduler.state(run.name)
        assert (state.submitted_ms, state.version) == (submitted_ms, 2)
        assert scheduler.stores.data.open[run.name] == scheduler.clock.now_ms() + 30_000
    stop = StopRequest("ann", "enough", scheduler.clock.now_ms())
    assert (await scheduler.write(structs.replace(state, stop=stop), [STOP])).ok
    await supervise(scheduler)([run.name], {})
    assert scheduler.stores.data.open[run.name] == scheduler.clock.now_ms() + 2_000


@pytest.mark.parametrize("submitted_ms", [0, 1])
async def test_reason_why_a_run_waited_goes_once_it_runs(submitted_ms: int) -> None:
    scheduler = MemoryScheduler(RunningNodeTasks())
    await scheduler.register()
    run = (await scheduler.run()).state
    waiting = structs.replace(run, submitted_ms=submitted_ms, reason="the node task manager is away")
    assert (await scheduler.write(waiting, [SUBMITTED, REASON])).ok
    await supervise(scheduler)([run.name], {})
    state = await scheduler.state(run.name)
    assert (state.reason, state.submitted_ms) == ("", submitted_ms or scheduler.clock.now_ms())


async def test_runs_that_have_ended_or_are_gone_are_not_looked_after() -> None:
    node_tasks = RunningNodeTasks()
    scheduler = MemoryScheduler(node_tasks)
    await scheduler.register()
    run = (await scheduler.run()).state
    stop = StopRequest("ann", "enough", scheduler.clock.now_ms())
    ended = structs.replace(run, status=CycleStatus.CANCELLED, stop=stop)
    assert (await scheduler.write(ended, [STATUS, STOP])).ok
    due = scheduler.stores.data.open
    due.update(dict.fromkeys((run.name, run.name._replace(cycle=99)), scheduler.clock.now_ms()))
    await supervise(scheduler)(list(due), {})
    assert (due, node_tasks.orders) == ({}, [])


async def test_stop_reaches_nodes_that_handle_the_outcome_after_ten_minutes() -> None:
    node_tasks = RunningNodeTasks()
    scheduler = MemoryScheduler(node_tasks)
    await scheduler.register(nodes=2, **AFTERWARDS)
    run = (await scheduler.run()).state
    stop = StopRequest("ann", "enough", scheduler.clock.now_ms())
    assert (await scheduler.write(structs.replace(run, stop=stop), [STOP])).ok
    for wait_ms, orders in ((0, [""]), (HANDLERS_MS - 1, [""]), (1, ["", "1"])):
        scheduler.clock.advance(wait_ms)
        node_tasks.orders.clear()
        await supervise(scheduler)([run.name], {})
        assert node_tasks.orders == orders


@pytest.mark.parametrize("known", [True, False], ids=["known to have ended", "not known"])
async def test_cycle_whose_other_nodes_have_ended_in_time_does_not_time_out(known: bool) -> None:
    node_tasks = RunningNodeTasks(finished="0")
    scheduler = MemoryScheduler(node_tasks)
    await scheduler.register(nodes=2, timeout="60s", **AFTERWARDS)
    run = (await scheduler.run()).state
    if known:
        await supervise(scheduler)([run.name], {})
    for wait_ms, orders in ((60_000, []), (HANDLERS_MS - 1, []), (1, ["", "1"])):
        scheduler.clock.advance(wait_ms)
        await supervise(scheduler)([run.name], {})
        assert node_tasks.orders == orders
        state = await scheduler.state(run.name)
        assert (state.phase, state.stop) == (Phase.FINALLY, None)


async def test_handlers_of_a_cycle_that_met_its_timeout_are_checked_when_they_are_late() -> None:
    scheduler = MemoryScheduler(RunningNodeTasks(finished="0"))
    await scheduler.register(nodes=2, timeout="60s", **AFTERWARDS)
    run = (await scheduler.run()).state
    await supervise(scheduler)([run.name], {})
    for wait_ms, next_ms in ((60_000, 30_000), (HANDLERS_MS - 1_000, 1_000), (1_000, 2_000), (2_000, 2_000)):
        scheduler.clock.advance(wait_ms)
        await supervise(scheduler)([run.name], {})
        assert scheduler.stores.data.open[run.name] == scheduler.clock.now_ms() + next_ms


async def test_run_that_cannot_be_read_keeps_no_other_from_being_looked_after() -> None:
    scheduler = MemoryScheduler(RunningNodeTasks())
    await scheduler.register()
    broken, whole = await scheduler.run(), await scheduler.run()
    read = scheduler.stores.states.load_many

    async def load_many(runs: Sequence[RunName]) -> list[ChainState | None]:
        return [None if run == broken.state.name else (await read([run]))[0] for run in runs]

    scheduler.stores.states.load_many = load_many  # type: ignore[method-assign]
    await supervise(scheduler)([broken.state.name, whole.state.name], {})
    state = await scheduler.stores.states.load(whole.state.name)
    assert state is not None
    assert state.submitted_ms
    check = (await scheduler.stores.open_runs.check([partition_of("f")], 9))[partition_of("f")]
    assert check.next_ms == scheduler.clock.now_ms() + 2_000, "the broken one stays among the open ones"


async def test_runs_with_large_inputs_are_looked_after_in_portions() -> None:
    node_tasks = RunningNodeTasks()
    scheduler = MemoryScheduler(node_tasks)
    await scheduler.register()
    runs = [(await scheduler.run(inputs_json="x" * 900_000)).state.name for _ in range(120)]
    await supervise(scheduler)(runs, {})
    assert node_tasks.asked_at_once == [50, 50, 20]
    assert all([(await scheduler.state(run)).submitted_ms for run in runs])
    node_tasks.asked_at_once.clear()
    await scheduler.register("small")
    await supervise(scheduler)([(await scheduler.run("small")).state.name for _ in range(120)], {})
    assert node_tasks.asked_at_once == [120]
