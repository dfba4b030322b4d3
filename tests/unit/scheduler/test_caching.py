"""What the scheduler keeps in memory: definitions, open states, and the time to wake up."""

import asyncio

import pytest
from msgspec import structs

from tests.unit.scheduler.memory_scheduler import MemoryScheduler
from tradewind.scheduler.domain.chain_state import ComponentEnd, Notes
from tradewind.scheduler.domain.memory import Memory
from tradewind.scheduler.use_cases.alarm import Alarm
from tradewind.scheduler.use_cases.definitions import Definitions
from tradewind.scheduler.use_cases.open_states import OpenStates

NEVER = 1e9


async def test_definitions_are_cached_by_flow_and_revision() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register("f", nodes=2)
    first = await scheduler.planned()
    assert await scheduler.planned() is first
    assert (first.shape.component_count, first.sinks) == (2, ("n0", "n1"))
    run = (await scheduler.run()).state
    await scheduler.register("f", nodes=3)
    second = await scheduler.planned()
    assert second.shape.revision == 2
    assert await scheduler.definitions.of_run(run) is first
    assert (
        await scheduler.definitions.of_run(structs.replace(run, facts=structs.replace(run.facts, revision=9))) is None
    )
    fresh = Definitions(scheduler.stores.flows)
    older = await fresh.of_run(run)
    assert older == first
    assert fresh.current("f") is None


async def test_another_definition_under_the_same_revision_is_reloaded() -> None:
    """For example after a deletion, or when the store lost a revision with its last second."""
    scheduler = MemoryScheduler()
    await scheduler.register("f", nodes=2)
    lost = await scheduler.planned()
    del scheduler.stores.data.flows["f"]
    await scheduler.register("f", nodes=3)
    # The change is not known here yet; the store reports it when asked to begin a cycle of the lost definition.
    assert scheduler.definitions.current("f") is lost
    run = await scheduler.run()
    assert (run.planned.shape.revision, run.state.facts.component_count) == (1, 3)
    assert await scheduler.definitions.of_run(run.state) is run.planned


@pytest.mark.parametrize("how", ["a run", "current", "loaded again"])
async def test_least_recently_used_definitions_are_evicted_first(how: str) -> None:
    scheduler = MemoryScheduler()
    definitions = Definitions(scheduler.stores.flows, max_nodes=10)
    for name in "abc":
        await scheduler.register(name, nodes=4)
    await definitions.load(["a", "b"])
    if how == "a run":
        await definitions.of_run((await scheduler.run("a")).state)
    elif how == "current":
        definitions.current("a")
    else:
        await definitions.load(["a"])
    await definitions.load(["c"])
    assert [definitions.current(name) is not None for name in "abc"] == [True, False, True]


async def test_definitions_of_deleted_flows_are_dropped() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register()
    await scheduler.planned()
    del scheduler.stores.data.flows["f"]
    await scheduler.definitions.load(["f"])
    assert scheduler.definitions.current("f") is None


async def test_open_states_take_bounded_memory() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register(nodes=2)
    kept = OpenStates(max_bytes=35_000)
    runs = [(await scheduler.run(inputs_json="x" * 10_000)).state for _ in range(5)]
    kept.put(runs)
    assert [kept.get(run.name) is not None for run in runs] == [False, False, True, True, True]
    kept.put([runs[2]])
    variables = Memory({"x": "1" * 10_000})
    kept.put([structs.replace(runs[0], notes=Notes(memory=variables))])
    assert [kept.get(run.name) is not None for run in runs] == [True, False, True, False, False]
    kept.drop(runs[0].name)
    kept.put([structs.replace(runs[1], components={str(at): ComponentEnd() for at in range(100)})])
    assert len(kept) == 1
    kept.clear()
    kept.put(runs[:3])
    assert len(kept) == 3


async def test_alarm_rings_at_the_earliest_requested_time() -> None:
    alarm = Alarm()
    loop = asyncio.get_running_loop()
    alarm.ring_in(60_000)
    alarm.ring_in(30)
    alarm.ring_in(50_000)
    begun = loop.time()
    await alarm.rest(NEVER)
    assert 0.02 < loop.time() - begun < 5
    begun = loop.time()
    sleeper = asyncio.ensure_future(alarm.rest(NEVER))
    await asyncio.sleep(0)
    alarm.ring_in(0)
    await asyncio.wait_for(sleeper, 5)
    await alarm.rest(NEVER, at_most_s=0.01)
    assert loop.time() - begun < 5


async def test_alarm_that_rang_early_ends_the_next_rest_once() -> None:
    alarm = Alarm()
    alarm.ring_in(0)
    await asyncio.wait_for(alarm.rest(NEVER), 5)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(alarm.rest(NEVER), 0.01)
