"""Every sentence of the ClaimStore's contract, for every store."""

import asyncio
from dataclasses import replace

import pytest

from tests.stores.trigger.bench import HOUR, PARTITION, POLICY, Bench, ids, token
from tradewind.server.schedules.grids import LAST_MS
from tradewind.trigger.domain.claim import SHARED, Firing
from tradewind.trigger.domain.lead import Lead
from tradewind.trigger.domain.schedule import Schedule
from tradewind.trigger.domain.trigger import TriggerStatus
from tradewind.trigger.ports.claims import DeadLetter, Heads, Survey


async def test_two_claimers_share_a_thousand_triggers_disjointly_oldest_first(bench: Bench) -> None:
    await asyncio.gather(*(bench.save(f"t{index:04}", index) for index in range(1000)))
    bench.clock.advance(HOUR)

    async def claim_all() -> list[str]:
        mine: list[str] = []
        while due := await bench.claim(37):
            mine += ids(due)
        return mine

    first, second = await asyncio.gather(claim_all(), claim_all())

    assert first == sorted(first)
    assert second == sorted(second)
    assert sorted(first + second) == [f"t{index:04}" for index in range(1000)]


async def test_only_due_triggers_are_claimed_and_survey_gives_the_next_times(bench: Bench) -> None:
    await bench.save("now", 0)
    await bench.save("later", 5000)

    claims = await bench.order()

    assert ids(claims.due) == ["now"]
    assert claims.due[0].deadline_ms == bench.now + 30_000
    assert claims.survey == Survey(Heads(bench.now + 5000, bench.now + 30_000), bench.now * 1000, lead_ms=0)


@pytest.mark.parametrize(("due", "shares", "expected_ms"), [(1, 1, 50), (1, 16, 62), (20, 16, 306), (90, 16, 500)])
async def test_lead_grows_with_number_of_due_triggers(bench: Bench, due: int, shares: int, expected_ms: int) -> None:
    for index in range(due):
        await bench.save(f"t{index}", 1000)
    lead = Lead(500, shares)
    bench.clock.advance(1000 - expected_ms - 1)
    claims = await bench.order(lead=lead)
    assert claims.due == ()
    assert claims.survey is not None
    # Where the lead is half a second, none of them is in sight yet; elsewhere the survey says when to look again.
    assert claims.survey.lead_ms == (expected_ms if expected_ms < 500 else 50)
    bench.clock.advance(1)
    assert len((await bench.order(lead=lead)).due) == due


async def test_claimed_trigger_is_not_claimed_again_during_its_lease(bench: Bench) -> None:
    await bench.save("tick", 0)
    await bench.claim_one()

    bench.clock.advance(29_999)

    assert await bench.claim() == []
    assert (await bench.found("tick")).status is TriggerStatus.CLAIMED


async def test_lapsed_claim_is_redelivered_with_new_token_and_same_planned_time(bench: Bench) -> None:
    saved = await bench.save("tick", Schedule.every(1000, bench.now))
    first = await bench.claim_one()
    bench.clock.advance(30_000)

    second = await bench.claim_one()

    assert second.trigger.planned_ms == saved.planned_ms
    assert (second.trigger.failures, second.trigger.last_error) == (1, "the lease lapsed before an answer came")
    assert first.token != second.token
    assert (token(first.token).partition, token(first.token).trigger_id) == (PARTITION, "tick")


async def test_answers_with_a_late_token_change_nothing_and_are_lost(bench: Bench) -> None:
    await bench.save("tick", Schedule.every(1000, bench.now))
    late = await bench.claim_one()
    bench.clock.advance(30_000)
    second = await bench.claim_one()
    before = await bench.find("tick")

    assert (await bench.ack(late)).lost == {late.token}
    assert (await bench.nack(late)).lost == {late.token}
    assert (await bench.extend(late, lease_ms=HOUR)).lost == {late.token}
    assert (await bench.give_back(late)).lost == {late.token}
    assert await bench.find("tick") == before
    assert (await bench.ack(second)).lost == frozenset()
    assert (await bench.ack(second)).lost == {second.token}


async def test_lapsed_claim_not_yet_reclaimed_can_still_be_acknowledged(bench: Bench) -> None:
    await bench.save("report", 0)
    due = await bench.claim_one()
    bench.clock.advance(HOUR)

    assert (await bench.ack(due)).lost == frozenset()
    assert await bench.claim() == []


async def test_repeated_lapses_back_off_and_end_dead(bench: Bench) -> None:
    await bench.save("poison", 0)
    for failures, delay in ((0, 0), (1, 0), (2, 1000), (3, 2000)):
        if delay:
            assert await bench.claim() == []
            bench.clock.advance(delay)
        assert (await bench.claim_one()).trigger.failures == failures
        bench.clock.advance(30_000)

    claims = await bench.order()

    assert claims.due == ()
    assert claims.dead == (DeadLetter("poison", 4, "the lease lapsed before an answer came"),)
    poison = await bench.found("poison")
    assert (poison.status, poison.next_fire_ms) == (TriggerStatus.DEAD, None)


async def test_claim_order_is_bounded_by_limit_and_one_mebibyte(bench: Bench) -> None:
    payload = '"' + "x" * 400_000 + '"'
    for index in range(5):
        await bench.save(f"t{index}", 0, payload=payload)

    assert ids(await bench.claim(1)) == ["t0"]
    assert ids(await bench.claim(10)) == ["t1", "t2", "t3"]
    assert ids(await bench.claim(10)) == ["t4"]


async def test_ack_plans_interval_on_its_grid(bench: Bench) -> None:
    anchor = bench.now
    await bench.save("tick", Schedule.every(1000, anchor))
    bench.clock.advance(40)

    settled = await bench.ack(await bench.claim_one())

    assert (settled.lost, settled.heads) == (frozenset(), {PARTITION: Heads(anchor + 1000, None)})
    tick = await bench.found("tick")
    assert (tick.status, tick.planned_ms, tick.revision) == (TriggerStatus.SCHEDULED, anchor + 1000, 1)


async def test_missed_ticks_are_one_delivery_and_grid_stays(bench: Bench) -> None:
    anchor = bench.now
    await bench.save("tick", Schedule.every(1000, anchor))
    bench.clock.advance(7300)

    due = await bench.claim_one()
    assert due.trigger.planned_ms == anchor
    assert await bench.claim() == []
    await bench.ack(due)

    assert (await bench.found("tick")).planned_ms == anchor + 8000


async def test_tick_due_exactly_now_is_skipped_by_the_ack(bench: Bench) -> None:
    anchor = bench.now
    await bench.save("tick", Schedule.every(1000, anchor))
    bench.clock.advance(3000)

    await bench.ack(await bench.claim_one())

    assert (await bench.found("tick")).planned_ms == anchor + 4000


async def test_ack_before_the_planned_time_goes_on_with_the_tick_after_it(bench: Bench) -> None:
    planned_ms = bench.now + 40
    await bench.save("tick", Schedule.every(1000, planned_ms))
    await bench.ack(*await bench.claim(lead=Lead(500)))
    assert (await bench.found("tick")).planned_ms == planned_ms + 1000


async def test_tick_just_before_the_end_of_a_schedule_is_its_last(bench: Bench) -> None:
    await bench.save("tick", replace(Schedule.every(1000, bench.now), end_ms=bench.now + 1001))
    await bench.ack(await bench.claim_one())
    await bench.ack(await bench.claim_late("tick", 1000))
    assert (await bench.found("tick")).status is TriggerStatus.COMPLETED


async def test_ack_may_name_the_next_planned_time(bench: Bench) -> None:
    anchor = bench.now
    await bench.save("tick", Schedule.every(1000, anchor))
    bench.clock.advance(5500)

    await bench.ack(await bench.claim_one(), next_ms=anchor + 1000)

    due = await bench.claim_one()
    assert due.trigger.planned_ms == anchor + 1000
    await bench.ack(due, next_ms=anchor + 1000)
    assert (await bench.found("tick")).planned_ms == anchor + 6000


async def test_ack_completes_trigger_without_a_next_time(bench: Bench) -> None:
    await bench.save("once", 0)
    await bench.save("stopped", Schedule.every(1000, bench.now))
    await bench.save("outlasted", Schedule.every(LAST_MS, bench.now))
    once, outlasted, stopped = await bench.claim()

    await bench.ack(once, next_ms=bench.now + 1000)
    await bench.ack(outlasted)
    await bench.ack(stopped, finished=True)

    for id in ("once", "outlasted", "stopped"):
        trigger = await bench.found(id)
        assert (trigger.status, trigger.next_fire_ms) == (TriggerStatus.COMPLETED, None)
    bench.clock.advance(HOUR)
    assert await bench.claim() == []


@pytest.mark.parametrize("last", ["once", "tick"])
async def test_trigger_that_ends_is_acked_with_one_that_goes_on(bench: Bench, last: str) -> None:
    anchor = bench.now
    await bench.save("once", 0)
    await bench.save("tick", Schedule.every(1000, anchor))
    due = await bench.claim()

    settled = await bench.ack(*sorted(due, key=lambda one: one.trigger.id == last))

    assert (settled.lost, settled.heads) == (frozenset(), {PARTITION: Heads(anchor + 1000, None)})
    assert (await bench.found("once")).status is TriggerStatus.COMPLETED
    assert (await bench.found("tick")).planned_ms == anchor + 1000


async def test_ack_clears_failures(bench: Bench) -> None:
    await bench.save("tick", Schedule.every(1000, bench.now))
    await bench.nack(await bench.claim_one(), retry_after_ms=0, error="busy")

    await bench.ack(await bench.claim_one())

    tick = await bench.found("tick")
    assert (tick.failures, tick.last_error) == (0, "")


async def test_nack_delays_by_backoff_and_keeps_planned_time(bench: Bench) -> None:
    saved = await bench.save("tick", Schedule.every(1000, bench.now))
    for failures, delay in ((1, 1000), (2, 2000), (3, 4000)):
        settled = await bench.nack(await bench.claim_one(), error=f"busy {failures}")
        assert settled.heads == {PARTITION: Heads(bench.now + delay, None)}
        tick = await bench.found("tick")
        assert (tick.failures, tick.last_error) == (failures, f"busy {failures}")
        assert (tick.status, tick.planned_ms) == (TriggerStatus.SCHEDULED, saved.planned_ms)
        bench.clock.advance(delay - 1)
        assert await bench.claim() == []
        bench.clock.advance(1)


async def test_nack_may_name_its_own_delay(bench: Bench) -> None:
    await bench.save("tick", 0)

    await bench.nack(await bench.claim_one(), retry_after_ms=70)

    bench.clock.advance(69)
    assert await bench.claim() == []
    bench.clock.advance(1)
    assert ids(await bench.claim()) == ["tick"]


async def test_trigger_dies_with_its_last_permitted_failure(bench: Bench) -> None:
    await bench.save("tick", Schedule.every(1000, bench.now))
    for _ in range(3):
        assert (await bench.nack(await bench.claim_one(), retry_after_ms=0)).dead == ()

    settled = await bench.nack(await bench.claim_one(), retry_after_ms=0, error="hopeless")

    assert settled.dead == (DeadLetter("tick", 4, "hopeless"),)
    assert settled.heads == {PARTITION: Heads()}
    tick = await bench.found("tick")
    assert (tick.status, tick.failures, tick.last_error) == (TriggerStatus.DEAD, 4, "hopeless")
    (firing,), _ = await bench.queues.firings(PARTITION, "", "", 10)
    assert (firing.trigger_id, firing.outcome, firing.error) == ("tick", "dead", "hopeless")
    bench.clock.advance(HOUR)
    assert await bench.claim() == []


async def test_postponed_nack_counts_no_failure(bench: Bench) -> None:
    await bench.save("tick", Schedule.every(1000, bench.now))
    for _ in range(3):
        await bench.nack(await bench.claim_one(), retry_after_ms=0)
    for _ in range(3):
        settled = await bench.nack(await bench.claim_one(), retry_after_ms=0, error="away", postponed=True)
        assert settled.dead == ()

    tick = await bench.found("tick")
    assert (tick.status, tick.failures, tick.last_error) == (TriggerStatus.SCHEDULED, 3, "away")


async def test_dead_trigger_that_is_kept_no_longer_leaves_the_list_of_its_queue(bench: Bench) -> None:
    queue = Bench(bench.store.of_queue("q"), bench.clock, bench.queues)
    for id in ("a", "b", "c", "d"):
        await queue.save(id)
        for _ in range(POLICY.max_failures):
            await queue.nack(*await queue.claim(epoch=SHARED), retry_after_ms=0)
    counts = await bench.queues.counts(PARTITION, "q")
    assert (counts.triggers, counts.dead) == (POLICY.dead_kept, POLICY.dead_kept)


async def test_redriving_revives_dead_triggers_and_no_others(bench: Bench) -> None:
    queue = Bench(bench.store.of_queue("q"), bench.clock, bench.queues)
    await queue.save("dead")
    for _ in range(POLICY.max_failures):
        await queue.nack(*await queue.claim(epoch=SHARED), retry_after_ms=0)
    await queue.save("alive", 1000)

    revivable = [id for id in ("dead", "alive", "missing") if await bench.queues.redrive(PARTITION, "q", id)]
    assert revivable == ["dead"]

    revived = await queue.found("dead")
    assert (revived.status, revived.failures, revived.last_error) == (TriggerStatus.SCHEDULED, 0, "")
    assert ids(await queue.claim(epoch=SHARED)) == ["dead"]


async def test_only_the_newest_dead_letters_are_kept(bench: Bench) -> None:
    for name in ("a", "b", "c", "d"):
        await bench.save(name, 0)
        for _ in range(4):
            await bench.nack(await bench.claim_one(), retry_after_ms=0)
        bench.clock.advance(1)

    assert await bench.find("a") is None
    for name in ("b", "c", "d"):
        assert (await bench.found(name)).status is TriggerStatus.DEAD


async def test_extension_moves_the_deadline(bench: Bench) -> None:
    await bench.save("tick", 0)
    due = await bench.claim_one()
    bench.clock.advance(20_000)

    settled = await bench.extend(due, lease_ms=60_000)

    assert (settled.lost, settled.heads) == (frozenset(), {PARTITION: Heads(None, bench.now + 60_000)})
    bench.clock.advance(59_999)
    assert await bench.claim() == []
    bench.clock.advance(1)
    assert ids(await bench.claim()) == ["tick"]


async def test_given_back_trigger_is_due_at_once_without_a_failure(bench: Bench) -> None:
    await bench.save("tick", Schedule.every(1000, bench.now))
    first = await bench.claim_one()

    settled = await bench.give_back(first)

    assert (settled.lost, settled.heads) == (frozenset(), {PARTITION: Heads(bench.now, None)})
    second = await bench.claim_one()
    assert (second.trigger.failures, second.trigger.planned_ms) == (0, first.trigger.planned_ms)
    assert (await bench.ack(first)).lost == {first.token}


async def test_overdue_triggers_wait_for_the_first_receiver(bench: Bench) -> None:
    await asyncio.gather(*(bench.save(f"t{index:03}", index) for index in range(300)))
    bench.clock.advance(24 * HOUR)

    assert isinstance(await bench.subscribe(), Survey)
    claimed: list[str] = []
    while due := await bench.claim(100):
        claimed += ids(due)

    assert claimed == [f"t{index:03}" for index in range(300)]


async def test_claims_of_many_partitions_are_acked_in_one_call(bench: Bench) -> None:
    for partition in (0, 7, 15):
        await bench.save(f"p{partition}", 0, partition=partition)
    due = [await bench.claim(partition=partition) for partition in (0, 7, 15)]

    settled = await bench.ack(*(one for (one,) in due))

    assert settled.heads == {0: Heads(), 7: Heads(), 15: Heads()}


async def test_fire_history_records_outcomes_and_is_capped(bench: Bench) -> None:
    anchor = bench.now
    await bench.save("tick", Schedule.every(1000, anchor))
    for _ in range(7):
        await bench.ack(await bench.claim_one())
        bench.clock.advance(1000)

    firings, end = await bench.queues.firings(PARTITION, "", "", 10)

    assert list(firings) == [
        Firing("tick", anchor + 1000 * tick, tick + 1, "fired", anchor + 1000 * tick) for tick in (6, 5, 4, 3, 2)
    ]
    assert end == ""
