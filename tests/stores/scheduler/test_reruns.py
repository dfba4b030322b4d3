"""Reruns of cycles: their numbers, what stands in their way, and what they do not stand in the way of."""

from typing import Any

import pytest
from msgspec import structs

from tests.servers import RedisServer
from tests.stores.scheduler.bench import (
    CHECK_IN,
    MINUTE,
    Bench,
    names,
    request_of,
    settling,
    shape,
)
from tradewind.scheduler.domain.beginning import BeginAnswer, BeginOutcome, RerunRequest
from tradewind.scheduler.domain.chain_state import MEMORY, RESULT, ChainState, CycleOrigin, Notes
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.flow_definition import OverlapPolicy
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.memory import Memory, MemoryChange
from tradewind.scheduler.domain.parent import Parent
from tradewind.scheduler.domain.rerun import Rerun
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.stores.keys import Keys
from tradewind.server.clock import ManualClock
from tradewind.server.partitions import partition_of

KEPT = (("0", (0, 1, 2, 7)), ("1", (4,)))


async def rerun(bench: Bench, source: ChainState, run_id: str = "again", **changes: Any) -> BeginAnswer:
    """Ask for a rerun of a run in the state in which it was read."""
    rerun = Rerun(source.name.run, source.facts.run_id, KEPT, ("n1",), "ada", "the feed was late")
    rerun_request = RerunRequest(source, run_id, rerun, CHECK_IN, MINUTE, **changes)
    return await bench.stores.cycles.begin_rerun(rerun_request)


async def ended(bench: Bench, keep_cycles: int = 100, log: str = "") -> ChainState:
    """Return a cycle that has begun and failed."""
    state = await bench.begun(bench.request(shape=shape(keep_cycles=keep_cycles)))
    await bench.end(state, CycleStatus.FAILED, log)
    return await bench.state(state.name)


async def test_a_rerun_is_the_next_run_of_the_same_cycle(bench: Bench) -> None:
    await bench.register()
    first = await ended(bench)
    answer = await rerun(bench, first, inputs_json='{"a":2}')
    assert (answer.outcome, answer.run, answer.run_id) == (BeginOutcome.BEGUN, RunName("f", 0, 1), "again")
    state = await bench.state(RunName("f", 0, 1))
    assert state == answer.state
    assert (state.version, state.status, state.components, state.end_ms) == (1, CycleStatus.RUNNING, {}, 0)
    assert state.facts.rerun == Rerun(0, first.facts.run_id, KEPT, ("n1",), "ada", "the feed was late")
    assert (state.facts.planned_ms, state.facts.revision) == (first.facts.planned_ms, first.facts.revision)
    assert (state.facts.inputs_json, state.facts.deadline_ms) == ('{"a":2}', bench.now + MINUTE)
    assert await bench.state(first.name) == first
    assert await bench.stores.cycles.latest_run("f", 0) == RunName("f", 0, 1)
    assert (await bench.log_lines(0))[-1] == 'Starting run 1 of cycle 0, by "ada"'
    assert names([await bench.begun()]) == [1]


async def test_only_the_latest_run_can_be_rerun_and_only_after_it_ended(bench: Bench) -> None:
    await bench.register()
    first = await bench.begun()
    assert (await rerun(bench, first)).outcome is BeginOutcome.NOT_ENDED
    await bench.end(first)
    first = await bench.state(first.name)
    assert (await rerun(bench, first)).outcome is BeginOutcome.BEGUN
    again = await rerun(bench, first, "other")
    assert (again.outcome, again.run) == (BeginOutcome.NOT_LATEST, RunName("f", 0, 1))
    second = await bench.state(RunName("f", 0, 1))
    assert (await rerun(bench, second, "other")).outcome is BeginOutcome.NOT_ENDED


async def test_repeated_rerun_request_gets_the_first_answer(bench: Bench) -> None:
    await bench.register()
    first = await ended(bench)
    request = request_of("r1", "p")
    assert await bench.stores.cycles.first_answer(request) is None
    assert (await rerun(bench, first, request=request)).outcome is BeginOutcome.BEGUN
    for answer in (
        await rerun(bench, first, "x", request=request),
        await bench.stores.cycles.first_answer(request),
    ):
        assert answer is not None
        assert (answer.outcome, answer.run, answer.run_id) == (BeginOutcome.DUPLICATE, RunName("f", 0, 1), "again")
    assert (await rerun(bench, first, "x", request=request_of("r1", "q"))).outcome is BeginOutcome.REUSED
    answer = await bench.stores.cycles.first_answer(request_of("r1", "q"))
    assert answer is not None
    assert answer.outcome is BeginOutcome.REUSED


async def test_rerun_blocks_no_other_cycle_and_stops_with_its_flow(bench: Bench) -> None:
    await bench.register(overlap=OverlapPolicy.SKIP)
    first = await ended(bench)
    assert (await rerun(bench, first)).outcome is BeginOutcome.BEGUN
    second = await bench.begun()
    assert second.name == RunName("f", 1)
    assert (await bench.begin(bench.request())).outcome is BeginOutcome.OVERLAP
    answer = await bench.change_status(FlowStatus.STOPPED)
    assert sorted(answer.stopping) == [RunName("f", 0, 1), RunName("f", 1)]


async def test_failed_rerun_does_not_count_towards_pause_after_failures(bench: Bench) -> None:
    await bench.register(pause_after_failures=2)
    await bench.change_status(FlowStatus.RUNNING)
    first = await ended(bench)
    answer = await rerun(bench, first)
    assert answer.state is not None
    await bench.end(answer.state, CycleStatus.FAILED)
    assert (await bench.flow()).status is FlowStatus.RUNNING


async def test_rerun_keeps_the_log_of_its_cycle(bench: Bench) -> None:
    await bench.register(keep_cycles=1)
    first = await ended(bench, keep_cycles=1, log="written")
    bench.clock.advance(1)
    answer = await rerun(bench, first)
    assert answer.state is not None
    await bench.end(answer.state)
    assert (await bench.log_lines(0))[-3:] == [
        "Cycle 0 failed",
        'Starting run 1 of cycle 0, by "ada"',
        "Cycle 0 completed",
    ]
    assert "written" in await bench.log_lines(0)


async def test_rerun_keeps_the_variables_and_the_result_that_were_set(bench: Bench) -> None:
    await bench.register()
    first = await bench.begun()
    notes = Notes("", Memory().with_change(MemoryChange({"cursor": "17"}, change_id="c1")), '{"profit":1}')
    assert (await bench.write(structs.replace(first, notes=notes), {MEMORY, RESULT})).ok
    await bench.end(await bench.state(first.name), CycleStatus.FAILED)
    answer = await rerun(bench, await bench.state(first.name))
    assert answer.state is not None
    assert answer.state.notes == notes
    assert await bench.state(answer.state.name) == answer.state


async def test_keep_cycles_counts_cycles_not_reruns(bench: Bench) -> None:
    await bench.register(keep_cycles=2)
    states = [await ended(bench, keep_cycles=2) for _ in range(2)]
    for again in range(3):
        for place, state in enumerate(states):
            answer = await rerun(bench, state, f"again{again}")
            assert answer.state is not None
            bench.clock.advance(MINUTE)
            await bench.end(answer.state, CycleStatus.FAILED)
            states[place] = await bench.state(answer.state.name)
    partition = partition_of("f")
    await bench.stores.cycles.tidy(partition, "", 0)
    kept = [state.name[1:] for state in await bench.stores.cycles.newest("f", None, 99)]
    assert kept == [(cycle, run) for cycle in (1, 0) for run in (3, 2, 1, 0)]
    await ended(bench, keep_cycles=2)
    await bench.stores.cycles.tidy(partition, "", 0)
    kept = [state.name[1:] for state in await bench.stores.cycles.newest("f", None, 99)]
    assert kept == [(2, 0), *((1, run) for run in (3, 2, 1, 0))]


@pytest.mark.parametrize("reruns", [1, 250])
async def test_earlier_runs_are_kept_as_long_as_the_latest_run_of_their_cycle(
    bench: Bench, server: RedisServer | None, reruns: int
) -> None:
    await bench.register()
    first = latest = await bench.begun(bench.request(shape=shape(keep_for_ms=MINUTE)))
    for number in range(reruns):
        await bench.end(latest, CycleStatus.FAILED)
        answer = await rerun(bench, await bench.state(latest.name), f"again{number}")
        assert answer.state is not None
        latest = answer.state
    later = structs.replace(latest, facts=structs.replace(latest.facts, keep_for_ms=1000 * MINUTE))
    bench.clock.advance(MINUTE - 1)
    await bench.end(later)
    if server is not None:
        assert await server.connect().pttl(Keys().run(*first.name)) > MINUTE
    bench.clock.advance(MINUTE - 1)
    assert (await bench.state(first.name)).facts.run_id == first.facts.run_id


async def test_earlier_runs_stay_while_the_latest_run_of_their_cycle_is_open(
    bench: Bench, server: RedisServer | None
) -> None:
    await bench.register(keep_cycles=1)
    state = await bench.begun(bench.request(shape=shape(keep_cycles=1, keep_for_ms=MINUTE)))
    for number in range(2):
        await bench.end(state, CycleStatus.FAILED)
        answer = await rerun(bench, await bench.state(state.name), f"again{number}")
        assert answer.state is not None
        state = answer.state
    bench.clock.advance(MINUTE + 1)
    for _ in range(3):
        await ended(bench, keep_cycles=1)
        bench.clock.advance(MINUTE)
    await bench.stores.cycles.tidy(partition_of("f"), "", 0)
    kept = [state.name[1:] for state in await bench.stores.cycles.newest("f", None, 99)]
    assert kept == [(3, 0), (0, 2), (0, 1), (0, 0)]
    if server is not None:
        keys = [Keys().run("f", 0, run) for run in range(3)]
        assert [await server.connect().pttl(key) for key in keys] == [-1, -1, -1]
    await bench.end(state)
    await ended(bench, keep_cycles=1)
    await bench.stores.cycles.tidy(partition_of("f"), "", 0)
    assert [state.name[1:] for state in await bench.stores.cycles.newest("f", None, 99)] == [(4, 0)]


async def test_runs_of_a_cycle_go_together_once_the_latest_ended_long_enough_ago(
    bench: Bench, server: RedisServer | None, clock: ManualClock
) -> None:
    bench = settling(server, clock)
    await bench.register(keep_cycles=1)
    first = await ended(bench, keep_cycles=1)
    clock.advance(2 * MINUTE)
    answer = await rerun(bench, first)
    assert answer.state is not None
    await ended(bench, keep_cycles=1)
    await bench.end(answer.state)

    async def on_record() -> list[tuple[int, int]]:
        await bench.stores.cycles.tidy(partition_of("f"), "", 0)
        return [state.name[1:] for state in await bench.stores.cycles.newest("f", None, 99)]

    assert await on_record() == [(1, 0), (0, 1), (0, 0)]
    clock.advance(MINUTE)
    assert await on_record() == [(1, 0)]


async def test_open_cycle_divides_no_runs_of_the_cycle_before(bench: Bench) -> None:
    await bench.register(keep_cycles=1)
    answer = await rerun(bench, await ended(bench, keep_cycles=1))
    assert answer.state is not None
    await bench.end(answer.state)
    later = await bench.begun(bench.request(shape=shape(keep_cycles=1)))
    await bench.stores.cycles.tidy(partition_of("f"), "", 0)
    kept = [state.name[1:] for state in await bench.stores.cycles.newest("f", None, 99)]
    assert kept == [(1, 0), (0, 1), (0, 0)]
    await bench.end(later)
    await bench.stores.cycles.tidy(partition_of("f"), "", 0)
    assert [state.name[1:] for state in await bench.stores.cycles.newest("f", None, 99)] == [(1, 0)]


async def test_log_of_a_cycle_stays_while_the_end_of_one_of_its_runs_is_to_be_returned(bench: Bench) -> None:
    await bench.register(keep_cycles=1)
    parent = Parent(RunName("above", 1), "r0", "sub", 1)
    asked = bench.request(shape=shape(keep_cycles=1), origin=CycleOrigin.SUB_FLOW, parent=parent)
    first = await bench.begun(asked)
    await bench.end(first, CycleStatus.FAILED, "no feed")
    again = await rerun(bench, await bench.state(first.name))
    assert again.state is not None
    await bench.end(again.state)
    lines = await bench.stores.logs.read("f", 0)
    assert "no feed" in [line.text for line in lines]
    await ended(bench, keep_cycles=1)
    assert again.run is not None
    assert await bench.stores.states.load_many([first.name, again.run]) == [await bench.state(first.name), None]
    assert await bench.stores.logs.read("f", 0) == lines
