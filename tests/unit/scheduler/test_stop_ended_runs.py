"""Answers to the question whether components that are open at the node task manager should be."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from tests.unit.scheduler.memory_scheduler import DirectNodeTasks, MemoryScheduler, event
from tradewind.scheduler.domain.chain_state import STOP, ChainState, StopRequest
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.submission import OpenComponentEvent, StopOrder
from tradewind.scheduler.ports.peers import PeerRefused
from tradewind.scheduler.use_cases.stop_ended_runs import StopEndedRuns
from tradewind.server.faults import Unreadable
from tradewind.server.partitions import partition_of

HOUR = 3600 * 1000


class Orders(DirectNodeTasks):
    """Keeps the orders to stop."""

    def __init__(self) -> None:
        super().__init__()
        self.orders: list[StopOrder] = []

    async def stop(self, order: StopOrder) -> None:
        self.orders.append(order)


class Stage:
    """A scheduler with a flow, and what it answers."""

    def __init__(self) -> None:
        self.node_tasks = Orders()
        self.scheduler = MemoryScheduler(self.node_tasks)
        self.clock = self.scheduler.clock
        self.stop_ended_runs = StopEndedRuns(self.scheduler.stores.states, self.scheduler.node_tasks, self.clock)

    async def begin(self) -> ChainState:
        """Begin a cycle."""
        await self.scheduler.register()
        return (await self.scheduler.run()).state

    async def stop(self, state: ChainState) -> None:
        """Note that somebody stops a cycle."""
        stopping = structs.replace(state, stop=StopRequest("ann", "no more", self.clock.now_ms()))
        assert (await self.scheduler.write(stopping, [STOP])).ok
        self.scheduler.open_states.drop(state.name)

    async def end(self, state: ChainState) -> None:
        """Let the only component of a cycle end."""
        assert not await self.scheduler.fold([event(state)], {partition_of("f"): 1})

    async def ask(self, state: ChainState, **changes: Any) -> list[StopOrder]:
        """Ask about the only component of a run; return the orders that follow."""
        asked = OpenComponentEvent(state.name, state.facts.run_id, "0", "ann", state.facts.start_ms, 0, 0, "1")
        self.node_tasks.orders.clear()
        await self.stop_ended_runs([structs.replace(asked, **changes)])
        return list(self.node_tasks.orders)


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def test_open_run_goes_on_however_old_it_is(stage: Stage) -> None:
    state = await stage.begin()
    stage.clock.advance(100 * HOUR)
    assert await stage.ask(state) == []


async def test_run_that_was_stopped_is_stopped_again_at_once_for_the_same_reason(stage: Stage) -> None:
    state = await stage.begin()
    await stage.stop(state)
    assert await stage.ask(state) == [], "it has not ended yet"
    await stage.end(state)
    assert await stage.ask(state) == [StopOrder(state.name, state.facts.run_id, "ann", "no more", "ann", 0, "0")]


async def test_other_ended_run_is_stopped_after_an_hour(stage: Stage) -> None:
    state = await stage.begin()
    stage.clock.advance(2 * HOUR)
    await stage.end(state)
    stage.clock.advance(HOUR - 1)
    assert await stage.ask(state) == []
    stage.clock.advance(1)
    (order,) = await stage.ask(state)
    assert (order.run, order.run_id, order.component_id, order.by) == (state.name, state.facts.run_id, "0", "system")
    assert "the cycle has ended" in order.reason


async def test_run_that_is_not_on_record_is_stopped_once_it_is_an_hour_old(stage: Stage) -> None:
    state = await stage.begin()
    for changes in ({"run_id": "another"}, {"run": RunName("f", 99)}):
        now_ms = stage.clock.now_ms()
        assert await stage.ask(state, begun_ms=now_ms - HOUR + 1, **changes) == []
        (order,) = await stage.ask(state, begun_ms=now_ms - HOUR, **changes)
        assert getattr(order, next(iter(changes))) == next(iter(changes.values()))


async def test_run_whose_record_cannot_be_read_goes_on_however_old_it_is(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(run: RunName) -> ChainState | None:
        raise Unreadable(str(run), "it is of another type")

    async def pass_over(runs: Sequence[RunName]) -> list[ChainState | None]:
        return [None for _ in runs]

    state = await stage.begin()
    monkeypatch.setattr(stage.scheduler.stores.states, "load", refuse)
    monkeypatch.setattr(stage.scheduler.stores.states, "load_many", pass_over)
    assert await stage.ask(state, begun_ms=0) == []


async def test_refusal_of_an_order_is_not_retried(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node task manager asks again."""

    async def refuse(order: StopOrder) -> None:
        raise PeerRefused("node task manager", "INVALID_ARGUMENT", "no")

    state = await stage.begin()
    monkeypatch.setattr(stage.node_tasks, "stop", refuse)
    assert await stage.ask(state, run_id="another", begun_ms=0) == []
