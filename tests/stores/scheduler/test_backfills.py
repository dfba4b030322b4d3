"""Backfills: which times begin, how many at once, what passes times over, and how backfills end."""

import asyncio
from dataclasses import replace

from msgspec import structs

from tests.servers import RedisServer
from tests.stores.scheduler.bench import MINUTE, Bench, backfill_draft, redis_stores, request_of, shape
from tradewind.scheduler.domain.backfill import BackfillOutcome, BackfillStatus, BackfillStep
from tradewind.scheduler.domain.beginning import BeginOutcome
from tradewind.scheduler.domain.chain_state import ChainState, CycleOrigin, FollowUp
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.flow_definition import OverlapPolicy
from tradewind.scheduler.domain.flow_record import StatusOutcome
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.schedule_definition import ScheduleDefinition
from tradewind.scheduler.stores.keys import Keys
from tradewind.server.clock import ManualClock
from tradewind.server.partitions import partition_of

HERE = [partition_of("f")]
T = 1_699_999_980_000
"""A full minute before the clock of these tests."""


async def begin_next(bench: Bench, backfill_id: int) -> ChainState:
    """Begin the next cycle of a backfill."""
    (step, *_) = (await bench.find_backfill(backfill_id)).steps()
    return await bench.begun(bench.backfill_request(step))


async def test_backfill_begins_times_in_order_as_cycles_end(bench: Bench) -> None:
    await bench.register(overlap=OverlapPolicy.SKIP)
    backfill_id = await bench.backfill(T - 3 * MINUTE, T, 2)
    assert await bench.stores.backfills.active(HERE, 9) == [("f", backfill_id)]
    backfill = await bench.find_backfill(backfill_id)
    steps = backfill.steps()
    assert steps == [
        BackfillStep(1, T - 3 * MINUTE, T - 2 * MINUTE, backfill.created_ms),
        BackfillStep(1, T - 2 * MINUTE, T - MINUTE, backfill.created_ms),
    ]
    answers = await bench.stores.cycles.begin([bench.backfill_request(step) for step in steps])
    states = [answer.state for answer in answers]
    assert [answer.outcome for answer in answers] == [BeginOutcome.BEGUN, BeginOutcome.BEGUN]
    for state, step in zip(states, steps, strict=True):
        assert state is not None
        assert state == await bench.state(state.name)
        facts = state.facts
        assert (facts.origin, facts.planned_ms, facts.backfill_id) == (CycleOrigin.BACKFILL, step.position_ms, 1)
    full = await bench.find_backfill(backfill_id)
    assert (full.running, full.begun, full.position_ms, full.steps()) == (2, 2, T - MINUTE, [])
    beyond = bench.backfill_request(BackfillStep(1, T - MINUTE, 0))
    assert (await bench.begin(beyond)).outcome is BeginOutcome.SETTLED
    assert states[1] is not None
    ended = await bench.end(states[1])
    assert ended.follow_up == FollowUp.ADVANCE_QUEUE
    last = await begin_next(bench, backfill_id)
    assert (await bench.find_backfill(backfill_id)).position_ms == 0
    assert states[0] is not None
    await bench.end(states[0], CycleStatus.FAILED)
    assert (await bench.find_backfill(backfill_id)).status is BackfillStatus.RUNNING
    await bench.end(last)
    done = await bench.find_backfill(backfill_id)
    assert (done.status, done.ended_ms) == (BackfillStatus.COMPLETED, bench.now)
    assert (done.begun, done.running, done.completed, done.failed) == (3, 0, 2, 1)
    assert await bench.stores.backfills.active(HERE, 9) == []
    lines = [(T + (at - 3) * MINUTE, "fired", at, 1, "") for at in range(3)]
    assert await bench.backfill_firings(backfill_id) == lines
    assert await bench.firings() == [(*line[:4], "backfill 1") for line in lines]


async def test_concurrent_requests_begin_each_time_once(bench: Bench) -> None:
    await bench.register()
    backfill_id = await bench.backfill(T - 20 * MINUTE, T, 20)
    steps = (await bench.find_backfill(backfill_id)).steps()
    requests = [[bench.backfill_request(step) for step in steps] for _ in range(3)]
    answers = await asyncio.gather(*(bench.stores.cycles.begin(each) for each in requests))
    begun = [answer.state for each in answers for answer in each if answer.state is not None]
    assert sorted(state.facts.planned_ms for state in begun) == [step.position_ms for step in steps]
    assert (await bench.find_backfill(backfill_id)).begun == 20


async def test_backfill_skips_a_time_that_already_has_a_cycle(bench: Bench) -> None:
    await bench.register()
    await bench.change_status(FlowStatus.RUNNING, start_at_ms=T)
    await bench.end(await bench.begun(await bench.scheduled_request(T)))
    bench.clock.advance(MINUTE)
    backfill_id = await bench.backfill(T - MINUTE, T + MINUTE)
    before = await begin_next(bench, backfill_id)
    await bench.end(before)
    (step,) = (await bench.find_backfill(backfill_id)).steps()
    assert (await bench.begin(bench.backfill_request(step))).outcome is BeginOutcome.DUPLICATE
    done = await bench.find_backfill(backfill_id)
    assert (done.status, done.begun, done.skipped) == (BackfillStatus.COMPLETED, 1, 1)
    assert await bench.backfill_firings(backfill_id) == [
        (T - MINUTE, "fired", 1, 1, ""),
        (T, "skipped", -1, 1, "cycle 0 had already begun for this time"),
    ]
    assert (T, "fired", 0, 1, "") in await bench.firings()


async def test_backfill_skips_and_counts_a_time_whose_cycle_has_expired(bench: Bench) -> None:
    await bench.register(keep_cycles=1)
    await bench.change_status(FlowStatus.RUNNING, start_at_ms=T)
    for minute in range(2):
        await bench.end(
            await bench.begun(await bench.scheduled_request(T + minute * MINUTE, shape=shape(keep_cycles=1)))
        )
        bench.clock.advance(MINUTE)
    backfill_id = await bench.backfill(T, T + 2 * MINUTE, 2)
    for step in (await bench.find_backfill(backfill_id)).steps():
        assert (await bench.begin(bench.backfill_request(step))).outcome is BeginOutcome.DUPLICATE
    done = await bench.find_backfill(backfill_id)
    assert (done.status, done.skipped, done.expired) == (BackfillStatus.COMPLETED, 2, 1)
    assert await bench.backfill_firings(backfill_id) == [
        (T, "skipped", -1, 1, "cycle 0 had already begun for this time, and is no longer on record"),
        (T + MINUTE, "skipped", -1, 1, "cycle 1 had already begun for this time"),
    ]


async def carry_out(bench: Bench, from_ms: int, to_ms: int) -> tuple[int, int]:
    """Carry out a backfill; return how many cycles began and how many times were skipped."""
    outcome, backfill_id = await bench.stores.backfills.create(backfill_draft(from_ms, to_ms, 50))
    assert outcome is BackfillOutcome.CREATED
    while (backfill := await bench.find_backfill(backfill_id)).status is BackfillStatus.RUNNING:
        for answer in await bench.stores.cycles.begin([bench.backfill_request(step) for step in backfill.steps()]):
            if answer.state is not None:
                await bench.end(answer.state)
    return backfill.begun, backfill.skipped


async def test_same_range_again_skips_times_that_the_ledger_of_the_flow_has_forgotten(bench: Bench) -> None:
    await bench.register()
    first = T - 1010 * MINUTE
    assert await carry_out(bench, first, T) == (1010, 0)
    assert await carry_out(bench, first - 5 * MINUTE, first) == (5, 0)
    assert len(await bench.firings()) == 1000
    assert await carry_out(bench, first - 10 * MINUTE, first + 20 * MINUTE) == (5, 25)


async def test_schedule_continues_after_a_time_begun_by_a_backfill(bench: Bench) -> None:
    await bench.register()
    await bench.change_status(FlowStatus.RUNNING, start_at_ms=T)
    state = await begin_next(bench, await bench.backfill(T, T + MINUTE))
    answer = await bench.begin(await bench.scheduled_request(T, now_ms=T))
    assert (answer.outcome, answer.run, answer.next_ms) == (BeginOutcome.DUPLICATE, state.name, T + MINUTE)
    assert (await bench.flow()).next_execution_ms == T + MINUTE


async def test_schedule_catches_up_after_a_time_begun_by_a_backfill(bench: Bench) -> None:
    await bench.register()
    await bench.change_status(FlowStatus.RUNNING, start_at_ms=T)
    await begin_next(bench, await bench.backfill(T, T + MINUTE))
    bench.clock.advance(2 * MINUTE)
    answer = await bench.begin(await bench.scheduled_request(T))
    assert (answer.outcome, answer.next_ms) == (BeginOutcome.DUPLICATE, T + 2 * MINUTE)
    assert (await bench.begun(await bench.scheduled_request(T + 2 * MINUTE))).facts.planned_ms == T + 2 * MINUTE


async def test_catch_up_excludes_a_time_begun_by_a_backfill(bench: Bench) -> None:
    await bench.register()
    await bench.change_status(FlowStatus.RUNNING, start_at_ms=T)
    await begin_next(bench, await bench.backfill(T + MINUTE, T + 2 * MINUTE))
    bench.clock.advance(MINUTE)
    answer = await bench.begin(await bench.scheduled_request(T))
    assert (answer.outcome, answer.next_ms) == (BeginOutcome.SETTLED, T + 2 * MINUTE)
    assert await bench.firings() == [
        (T, "missed", -1, 1, "found due too late"),
        (T + MINUTE, "fired", 0, 1, "backfill 1"),
    ]
    assert (await bench.flow()).next_execution_ms == T + 2 * MINUTE


async def test_flow_completes_when_a_backfill_began_its_last_time(bench: Bench) -> None:
    await bench.register(schedule=ScheduleDefinition(times_ms=(T,)))
    await bench.change_status(FlowStatus.RUNNING, start_at_ms=T)
    state = await begin_next(bench, await bench.backfill(T, T + MINUTE))
    assert (await bench.begin(await bench.scheduled_request(T))).next_ms == 0
    await bench.end(state)
    assert (await bench.flow()).status is FlowStatus.COMPLETED


async def test_overlap_policy_ignores_cycles_of_backfills(bench: Bench) -> None:
    await bench.register(overlap=OverlapPolicy.CANCEL_RUNNING)
    await bench.change_status(FlowStatus.RUNNING)
    due = bench.now
    backfill_id = await bench.backfill(T - MINUTE, T)
    filling = await begin_next(bench, backfill_id)
    own = await bench.begun(await bench.scheduled_request(due))
    bench.clock.advance(MINUTE)
    answer = await bench.begin(await bench.scheduled_request(due + MINUTE))
    assert (answer.outcome, answer.stopping) == (BeginOutcome.SETTLED, True)
    assert (await bench.state(own.name)).stop is not None
    assert (await bench.state(filling.name)).stop is None
    await bench.end(structs.replace(own, version=2), CycleStatus.CANCELLED)
    assert (await bench.begin(bench.queued_request())).outcome is BeginOutcome.BEGUN
    assert (await bench.begin()).outcome is BeginOutcome.OVERLAP


async def test_failures_of_backfills_do_not_pause_the_flow(bench: Bench) -> None:
    await bench.register(pause_after_failures=1)
    await bench.change_status(FlowStatus.RUNNING)
    backfill_id = await bench.backfill(T - MINUTE, T)
    assert (await bench.end(await begin_next(bench, backfill_id), CycleStatus.FAILED)).follow_up
    assert (await bench.flow()).status is FlowStatus.RUNNING


async def test_backfill_waits_while_its_flow_is_paused_and_is_cancelled_by_a_stop(bench: Bench) -> None:
    await bench.register()
    await bench.change_status(FlowStatus.RUNNING)
    backfill_id = await bench.backfill(T - 5 * MINUTE, T)
    state = await begin_next(bench, backfill_id)
    await bench.change_status(FlowStatus.PAUSED)
    await bench.end(state)
    (step,) = (await bench.find_backfill(backfill_id)).steps()
    assert (await bench.begin(bench.backfill_request(step))).outcome is BeginOutcome.SETTLED
    await bench.change_status(FlowStatus.RUNNING)
    second = await begin_next(bench, backfill_id)
    answer = await bench.change_status(FlowStatus.STOPPED)
    assert answer.stopping == (second.name,)
    ended = await bench.find_backfill(backfill_id)
    assert (ended.status, ended.reason, ended.running) == (BackfillStatus.CANCELLED, "the flow was stopped", 1)
    assert (await bench.backfill_firings(backfill_id))[-1] == (T - 3 * MINUTE, "dropped", -1, 3, "the flow was stopped")
    (dropped,) = await bench.stores.firings.newest("f", 0, 1, backfill_id)
    assert dropped.last_ms == T - MINUTE
    await bench.end(structs.replace(second, version=2), CycleStatus.CANCELLED)
    ended = await bench.find_backfill(backfill_id)
    assert (ended.status, ended.running, ended.failed) == (BackfillStatus.CANCELLED, 0, 1)


async def test_backfill_is_left_alone_while_as_many_cycles_run_as_may(bench: Bench) -> None:
    await bench.register()
    backfill_id = await bench.backfill(T - 3 * MINUTE, T)
    first = await begin_next(bench, backfill_id)
    assert await bench.stores.backfills.active(HERE, 9) == []
    bench.clock.advance(5 * MINUTE)
    assert await bench.stores.backfills.active(HERE, 9) == [("f", backfill_id)], "in case that an end went unnoticed"
    await bench.end(first)
    second = await begin_next(bench, backfill_id)
    assert await bench.stores.backfills.active(HERE, 9) == []
    await bench.end(second)
    assert await bench.stores.backfills.active(HERE, 9) == [("f", backfill_id)]


async def test_backfill_is_left_alone_once_its_last_time_has_begun(bench: Bench) -> None:
    await bench.register()
    backfill_id = await bench.backfill(T - 2 * MINUTE, T, 9)
    first = await begin_next(bench, backfill_id)
    assert await bench.stores.backfills.active(HERE, 9) == [("f", backfill_id)]
    await begin_next(bench, backfill_id)
    await bench.end(first)
    assert await bench.stores.backfills.active(HERE, 9) == []


async def test_backfill_is_left_alone_once_its_flow_was_found_paused_until_it_is_resumed(bench: Bench) -> None:
    await bench.register()
    await bench.change_status(FlowStatus.RUNNING)
    backfill_id = await bench.backfill(T - 2 * MINUTE, T)
    await bench.change_status(FlowStatus.PAUSED)
    (step, *_) = (await bench.find_backfill(backfill_id)).steps()
    assert (await bench.begin(bench.backfill_request(step))).outcome is BeginOutcome.SETTLED
    assert await bench.stores.backfills.active(HERE, 9) == []
    await bench.change_status(FlowStatus.RUNNING)
    assert await bench.stores.backfills.active(HERE, 9) == [("f", backfill_id)]


async def test_backfill_goes_on_once_its_paused_flow_is_over(bench: Bench) -> None:
    await bench.register(schedule=ScheduleDefinition(times_ms=(T,)))
    await bench.change_status(FlowStatus.RUNNING, start_at_ms=T)
    last = await bench.begun(await bench.scheduled_request(T))
    backfill_id = await bench.backfill(T - 2 * MINUTE, T)
    await bench.change_status(FlowStatus.PAUSED)
    (step, *_) = (await bench.find_backfill(backfill_id)).steps()
    assert (await bench.begin(bench.backfill_request(step))).outcome is BeginOutcome.SETTLED
    await bench.end(last)
    assert (await bench.flow()).status is FlowStatus.COMPLETED
    assert await bench.stores.backfills.active(HERE, 9) == [("f", backfill_id)]


async def test_backfill_goes_on_once_a_lost_run_of_it_is_forgotten(redis_server: RedisServer) -> None:
    clock = ManualClock()
    bench = Bench(redis_stores(redis_server, clock), clock)
    await bench.register()
    backfill_id = await bench.backfill(T - 3 * MINUTE, T)
    lost = await begin_next(bench, backfill_id)
    await redis_server.connect().execute_command("DEL", Keys().run("f", lost.name.cycle, 0))
    await bench.stores.open_runs.forget(lost.name)
    assert await bench.stores.backfills.active(HERE, 9) == [("f", backfill_id)]


async def test_stopping_a_stopped_flow_cancels_its_backfill(bench: Bench) -> None:
    await bench.register()
    await bench.change_status(FlowStatus.STOPPED)
    backfill_id = await bench.backfill(T - 3 * MINUTE, T)
    state = await begin_next(bench, backfill_id)
    answer = await bench.change_status(FlowStatus.STOPPED)
    assert (answer.outcome, answer.stopping) == (StatusOutcome.UNCHANGED, (state.name,))
    backfill = await bench.find_backfill(backfill_id)
    assert (backfill.status, backfill.reason, backfill.left) == (BackfillStatus.CANCELLED, "the flow was stopped", 2)


async def test_cancelled_backfill_begins_no_more_cycles(bench: Bench, server: RedisServer | None) -> None:
    await bench.register()
    backfill_id = await bench.backfill(T - 5 * MINUTE, T)
    state = await begin_next(bench, backfill_id)
    step = BackfillStep(backfill_id, T - 4 * MINUTE, T - 3 * MINUTE)
    assert await bench.stores.backfills.cancel("f", backfill_id, "cancelled by ada")
    assert not await bench.stores.backfills.cancel("f", backfill_id, "again")
    assert (await bench.begin(bench.backfill_request(step))).outcome is BeginOutcome.SETTLED
    assert (await bench.find_backfill(backfill_id)).reason == "cancelled by ada"
    assert (await bench.state(state.name)).stop is None
    assert await bench.stores.backfills.active(HERE, 9) == []
    if server is not None:
        for key in (Keys().backfill("f", backfill_id), Keys().backfill_firings("f", backfill_id)):
            assert 0 < await server.connect().pttl(key) <= 7 * 24 * 3600 * 1000
    else:
        bench.clock.advance(7 * 24 * 3600 * 1000)
        assert await bench.stores.backfills.find("f", [backfill_id]) == [None]


async def test_cycle_that_is_trimmed_as_it_ends_counts_for_its_backfill(bench: Bench) -> None:
    await bench.register(keep_cycles=1)
    backfill_id = await bench.backfill(T - 2 * MINUTE, T, 2)
    steps = (await bench.find_backfill(backfill_id)).steps()
    kept = shape(keep_cycles=1)
    first, second = [await bench.begun(bench.backfill_request(step, shape=kept)) for step in steps]
    await bench.end(second)
    await bench.end(first)
    assert await bench.stores.states.load(first.name) is None
    found = await bench.find_backfill(backfill_id)
    assert (found.status, found.running, found.completed) == (BackfillStatus.COMPLETED, 0, 2)


async def test_renumbered_cycle_still_belongs_to_its_backfill(bench: Bench) -> None:
    await bench.register()
    backfill_id = await bench.backfill(T - MINUTE, T)
    state = await begin_next(bench, backfill_id)
    again = bench.backfill_request(
        BackfillStep(backfill_id, T - MINUTE), run_id=state.facts.run_id, replaces=state.name.cycle, at_least=7
    )
    renamed = await bench.begun(again)
    assert (renamed.name.cycle, renamed.facts.backfill_id) == (7, backfill_id)
    found = await bench.find_backfill(backfill_id)
    assert (found.begun, found.running) == (1, 1)
    await bench.end(renamed)
    assert (await bench.find_backfill(backfill_id)).status is BackfillStatus.COMPLETED
    assert await bench.backfill_firings(backfill_id) == [(T - MINUTE, "fired", 7, 1, "")]


async def test_request_creates_one_backfill_and_at_most_five_run(bench: Bench) -> None:
    create = bench.stores.backfills.create
    draft = backfill_draft(T - MINUTE, T)
    assert await create(draft) == (BackfillOutcome.NOT_FOUND, 0)
    await bench.register()
    asked = replace(draft, request=request_of("r"))
    assert await create(asked) == (BackfillOutcome.CREATED, 1)
    assert await create(asked) == (BackfillOutcome.REPEATED, 1)
    assert await create(replace(draft, request=request_of("r", "q"))) == (BackfillOutcome.REUSED, 0)
    assert [await create(draft) for _ in range(5)] == [
        *((BackfillOutcome.CREATED, 2 + at) for at in range(4)),
        (BackfillOutcome.FULL, 0),
    ]
    assert await bench.stores.backfills.ids("f") == [5, 4, 3, 2, 1]
    await bench.stores.backfills.cancel("f", 3, "x")
    assert await create(draft) == (BackfillOutcome.CREATED, 6)
    await bench.change_status(FlowStatus.DELETING)
    assert await create(draft) == (BackfillOutcome.DELETING, 0)
    await bench.remove()
    assert await bench.stores.backfills.ids("f") == []
    assert await bench.stores.backfills.active(HERE, 9) == []
    await bench.register()
    assert await create(asked) == (BackfillOutcome.CREATED, 1), "the request was for an earlier flow of this name"


async def test_flow_keeps_its_newest_hundred_backfills_and_those_under_way(
    bench: Bench, server: RedisServer | None
) -> None:
    await bench.register()
    under_way, ended = [await bench.backfill(T - MINUTE, T) for _ in range(2)]
    await bench.stores.backfills.cancel("f", ended, "x")
    for _ in range(99):
        await bench.stores.backfills.cancel("f", await bench.backfill(T - MINUTE, T), "x")
    assert await bench.stores.backfills.ids("f") == [*range(101, 0, -1)]
    newest = await bench.backfill(T - MINUTE, T)
    assert await bench.stores.backfills.ids("f") == [*range(newest, 2, -1), under_way]
    assert await bench.stores.backfills.find("f", [ended]) == [None]
    if server is not None:
        assert not await server.connect().exists(Keys().backfill_firings("f", ended))
