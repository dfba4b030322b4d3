"""Which numbers cycles get when the store has lost the latest ones: ids of node tasks go by these numbers."""

from typing import Any

from tests.unit.scheduler.memory_scheduler import MemoryScheduler
from tradewind.scheduler.domain.chain_state import CycleOrigin
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.use_cases.begin_cycles import CycleRequest
from tradewind.scheduler.use_cases.begun_numbers import BegunNumbers

MINUTE_MS = 60_000
PLANNED = 1_800_000_000_000


async def running(**fields: Any) -> MemoryScheduler:
    """Return a scheduler of one flow that runs each minute."""
    scheduler = MemoryScheduler()
    await scheduler.register(**fields)
    scheduler.stores.data.flows["f"].status = FlowStatus.RUNNING
    return scheduler


def due(minute: int) -> CycleRequest:
    """Return the request of a trigger whose planned time is this many minutes after the first."""
    at_ms = PLANNED + minute * MINUTE_MS
    return CycleRequest("f", CycleOrigin.SCHEDULE, due_ms=at_ms, now_ms=at_ms, schedule_epoch=2**60)


async def begun(scheduler: MemoryScheduler, *requests: CycleRequest) -> list[int]:
    """Begin cycles and return their numbers."""
    return [each.answer.run.cycle for each in await scheduler.begin(requests) if each.answer.run is not None]


def lose_cycles_from(scheduler: MemoryScheduler, first: int) -> None:
    """Let the store lose the cycles from `first` on, with its connection."""
    flow = scheduler.stores.data.flows["f"]
    for name in [name for name in flow.runs if name.cycle >= first]:
        del flow.runs[name]
        flow.open.pop(name, None)
    flow.firings.clear()
    flow.last_cycle = first - 1
    scheduler.numbers.store_lost()


async def test_planned_times_begin_again_under_the_numbers_that_they_had() -> None:
    scheduler = await running()
    assert await begun(scheduler, *map(due, range(5))) == [0, 1, 2, 3, 4]
    lose_cycles_from(scheduler, 1)
    # The flow catches up with the latest time only.
    assert await begun(scheduler, due(4), due(5)) == [4, 5]
    lose_cycles_from(scheduler, 1)
    assert await begun(scheduler, *map(due, range(1, 7))) == [1, 2, 3, 4, 5, 6]


async def test_planned_time_that_another_replica_began_gets_the_next_number() -> None:
    """It had that number, and a higher one would give its node tasks other ids."""
    scheduler = await running()
    states = [each.answer.state for each in await scheduler.begin([due(minute) for minute in range(5)])]
    numbers = BegunNumbers()
    numbers.note(state for state in states if state is not None and state.name.cycle not in (1, 2))
    numbers.store_lost()
    assert [numbers.at_least_for("f", due(minute).due_ms) for minute in range(6)] == [0, 0, 0, 3, 4, 5]


async def test_planned_time_that_waited_begins_again_under_the_number_that_it_had() -> None:
    scheduler = await running(overlap="queue_all")
    flow = scheduler.stores.data.flows["f"]
    assert await begun(scheduler, due(0), due(1), due(2)) == [0]
    for cycle in (1, 2):
        flow.open.clear()
        assert await begun(scheduler, CycleRequest("f", CycleOrigin.SCHEDULE, queued=True)) == [cycle]
    lose_cycles_from(scheduler, 1)
    assert await begun(scheduler, due(2)) == [2]


async def test_no_other_cycle_gets_a_number_that_was_lost() -> None:
    scheduler = await running()
    by_hand = CycleRequest("f")
    assert await begun(scheduler, by_hand, due(0), by_hand) == [0, 1, 2]
    lose_cycles_from(scheduler, 0)
    assert await begun(scheduler, by_hand) == [3]
    assert await begun(scheduler, due(0)) == [4]
    lose_cycles_from(scheduler, 0)
    lose_cycles_from(scheduler, 0)
    assert await begun(scheduler, by_hand, due(1)) == [5, 6]


async def test_numbers_have_no_gap_while_the_store_loses_nothing() -> None:
    scheduler = await running()
    assert await begun(scheduler, due(0), due(1)) == [0, 1]
    scheduler.numbers.store_lost()
    assert await begun(scheduler, due(1), due(2), CycleRequest("f")) == [1, 2, 3]


async def test_as_many_runs_are_remembered_as_are_to_be() -> None:
    scheduler = await running()
    states = [(await scheduler.run()).state for _ in range(3)]
    numbers = BegunNumbers(most=2)
    numbers.note(states)
    numbers.store_lost()
    assert [numbers.at_least("f", state.facts.run_id) for state in states] == [3, 1, 2]
    assert numbers.at_least("another", states[2].facts.run_id) == 0
