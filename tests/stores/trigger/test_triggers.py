"""Every sentence of the TriggerStore's contract, for every store."""

import pytest

from tests.stores.trigger.bench import DAY, HOUR, Bench, ids, unchanged_but
from tradewind.trigger.domain.errors import StaleEpoch
from tradewind.trigger.domain.schedule import Schedule
from tradewind.trigger.domain.trigger import Trigger, TriggerStatus
from tradewind.trigger.ports.triggers import Position


async def test_new_trigger_is_planned_at_its_anchor_and_returned_as_stored(bench: Bench) -> None:
    schedule = Schedule.every(1000, bench.now + 5000)

    saved = await bench.save("tick", schedule, payload='{"flow":"é"}', epoch=7)

    assert saved == Trigger(
        "tick", "flow", schedule, '{"flow":"é"}', 7, TriggerStatus.SCHEDULED, bench.now + 5000, 0, "", 1, bench.now
    )
    assert saved.next_fire_ms == bench.now + 5000
    assert await bench.find("tick") == saved
    assert await bench.find("other") is None


async def test_saving_an_unchanged_trigger_changes_nothing(bench: Bench) -> None:
    schedule = Schedule.every(1000, bench.now)
    saved = await bench.save("tick", schedule)
    due = await bench.claim_one()
    bench.clock.advance(10)

    assert await bench.save("tick", schedule) == unchanged_but(saved, status=TriggerStatus.CLAIMED)
    assert (await bench.ack(due)).lost == frozenset()
    again = await bench.save("tick", schedule)
    assert (again.planned_ms, again.revision) == (saved.planned_ms + 1000, 1)


async def test_new_payload_raises_revision_and_keeps_planned_time_and_claim(bench: Bench) -> None:
    schedule = Schedule.every(1000, bench.now)
    await bench.save("tick", schedule)
    due = await bench.claim_one()

    changed = await bench.save("tick", schedule, payload="[1]")

    assert (changed.payload_json, changed.revision, changed.status) == ("[1]", 2, TriggerStatus.CLAIMED)
    assert (await bench.ack(due)).lost == frozenset()
    assert (await bench.found("tick")).planned_ms == due.trigger.planned_ms + 1000


async def test_new_schedule_is_planned_anew_and_voids_a_claim(bench: Bench) -> None:
    await bench.save("tick", Schedule.every(1000, bench.now))
    due = await bench.claim_one()

    changed = await bench.save("tick", Schedule.every(5000, bench.now + 700))

    assert (changed.status, changed.planned_ms, changed.revision) == (TriggerStatus.SCHEDULED, bench.now + 700, 2)
    assert (await bench.ack(due)).lost == {due.token}
    assert await bench.find("tick") == changed
    assert ids((await bench.claimed()).triggers) == []


async def test_higher_epoch_keeps_planned_time_clears_failures_and_voids_a_claim(bench: Bench) -> None:
    schedule = Schedule.every(1000, bench.now)
    await bench.save("tick", schedule, epoch=1)
    await bench.nack(await bench.claim_one(), retry_after_ms=0, error="busy")
    due = await bench.claim_one()

    raised = await bench.save("tick", schedule, epoch=2)

    assert (raised.epoch, raised.planned_ms, raised.failures, raised.last_error) == (2, bench.now, 0, "")
    assert (await bench.ack(due)).lost == {due.token}
    assert (await bench.claim_one()).trigger == unchanged_but(raised, status=TriggerStatus.CLAIMED)


async def test_higher_epoch_ends_the_delay_after_a_failure(bench: Bench) -> None:
    schedule = Schedule.every(1000, bench.now)
    await bench.save("tick", schedule)
    await bench.nack(await bench.claim_one(), retry_after_ms=HOUR)

    await bench.save("tick", schedule, epoch=2)

    assert ids(await bench.claim()) == ["tick"]


async def test_save_with_a_lower_epoch_is_refused_and_changes_nothing(bench: Bench) -> None:
    saved = await bench.save("tick", 1000, epoch=5)

    with pytest.raises(StaleEpoch) as refusal:
        await bench.save("tick", 9000, epoch=4)

    assert (refusal.value.epoch, refusal.value.known) == (4, 5)
    assert await bench.find("tick") == saved


async def test_completed_trigger_restarts_only_with_a_higher_epoch(bench: Bench) -> None:
    schedule = Schedule.once(bench.now)
    await bench.save("report", schedule)
    await bench.ack(await bench.claim_one())

    assert (await bench.save("report", schedule)).status is TriggerStatus.COMPLETED
    assert await bench.claim() == []
    again = await bench.save("report", schedule, epoch=2)

    assert (again.status, again.planned_ms, again.revision) == (TriggerStatus.SCHEDULED, schedule.first(0), 2)
    assert ids(await bench.claim()) == ["report"]


async def test_finished_interval_restarts_at_its_anchor(bench: Bench) -> None:
    schedule = Schedule.every(1000, bench.now)
    await bench.save("tick", schedule)
    bench.clock.advance(5000)
    await bench.ack(await bench.claim_one())
    await bench.ack(await bench.claim_late("tick", 10_000), finished=True)

    again = await bench.save("tick", schedule, epoch=2)

    assert (again.status, again.planned_ms) == (TriggerStatus.SCHEDULED, schedule.first(0))


async def test_dead_trigger_saved_with_higher_epoch_keeps_its_planned_time(bench: Bench) -> None:
    schedule = Schedule.every(1000, bench.now)
    await bench.save("tick", schedule)
    await bench.ack(await bench.claim_one())
    bench.clock.advance(5000)
    for _ in range(4):
        await bench.nack(await bench.claim_one(), retry_after_ms=0)
    assert (await bench.save("tick", schedule)).status is TriggerStatus.DEAD

    alive = await bench.save("tick", schedule, epoch=2)

    assert (alive.status, alive.planned_ms, alive.failures) == (
        TriggerStatus.SCHEDULED,
        schedule.next_after(schedule.first(0) or 0, 0),
        0,
    )
    assert ids(await bench.claim()) == ["tick"]


async def test_remove_returns_whether_the_trigger_existed(bench: Bench) -> None:
    await bench.save("tick", 1000)

    assert await bench.store.remove(3, "tick", 1)
    assert not await bench.store.remove(3, "tick", 1)
    assert await bench.find("tick") is None
    assert (await bench.scheduled()).triggers == ()


async def test_remove_voids_a_claim(bench: Bench) -> None:
    await bench.save("tick", Schedule.every(1000, bench.now))
    due = await bench.claim_one()

    assert await bench.store.remove(3, "tick", 1)

    assert (await bench.ack(due)).lost == {due.token}
    assert await bench.find("tick") is None
    bench.clock.advance(HOUR)
    assert await bench.claim() == []


async def test_save_with_older_epoch_is_refused_for_an_hour_after_removal(bench: Bench) -> None:
    await bench.save("tick", 1000, epoch=5)
    await bench.store.remove(3, "tick", 6)

    bench.clock.advance(HOUR - 1)
    with pytest.raises(StaleEpoch, match="epoch 6"):
        await bench.save("tick", 1000, epoch=5)
    with pytest.raises(StaleEpoch):
        await bench.store.remove(3, "tick", 5)
    bench.clock.advance(1)
    assert (await bench.save("tick", 1000, epoch=5)).epoch == 5


async def test_removing_a_missing_trigger_still_refuses_older_saves(bench: Bench) -> None:
    assert not await bench.store.remove(3, "tick", 6)

    with pytest.raises(StaleEpoch):
        await bench.save("tick", 1000, epoch=5)
    assert (await bench.save("tick", 1000, epoch=6)).revision == 1


async def test_remove_with_a_lower_epoch_is_refused(bench: Bench) -> None:
    saved = await bench.save("tick", 1000, epoch=5)

    with pytest.raises(StaleEpoch):
        await bench.store.remove(3, "tick", 4)

    assert await bench.find("tick") == saved


async def test_trigger_due_in_thirty_days_keeps_its_payload(bench: Bench) -> None:
    saved = await bench.save("far", 30 * DAY, payload='{"kept":true}')
    bench.clock.advance(30 * DAY)

    due = await bench.claim_one()

    assert due.trigger == unchanged_but(saved, status=TriggerStatus.CLAIMED)


async def test_completed_trigger_is_kept_for_seven_days(bench: Bench) -> None:
    await bench.save("report", 0)
    await bench.ack(await bench.claim_one())

    bench.clock.advance(7 * DAY - 1)
    report = await bench.found("report")
    assert (report.status, report.next_fire_ms) == (TriggerStatus.COMPLETED, None)
    bench.clock.advance(1)
    assert await bench.find("report") is None


async def test_pages_list_scheduled_triggers_earliest_first_and_claim_none(bench: Bench) -> None:
    for id, delay in (("c", 200), ("a", 300), ("b", 100), ("later", 301)):
        await bench.save(id, delay)

    page = await bench.scheduled(up_to_ms=bench.now + 300)

    assert ids(page.triggers) == ["b", "c", "a"]
    assert not page.more
    assert ids((await bench.scheduled(up_to_ms=0)).triggers) == []
    bench.clock.advance(200)
    assert ids((await bench.scheduled(up_to_ms=0)).triggers) == ["b", "c"]
    assert ids((await bench.scheduled()).triggers) == ["b", "c", "a", "later"]
    assert ids(await bench.claim()) == ["b", "c"]


async def test_pages_continue_correctly_among_triggers_due_at_the_same_time(bench: Bench) -> None:
    names = [f"t{index:03}" for index in range(25)]
    for name in names:
        await bench.save(name, 100)
    seen: list[str] = []
    end: Position | None = None
    more = True
    while more:
        page = await bench.scheduled(after=end, limit=10)
        seen += ids(page.triggers)
        end, more = page.end, page.more
        # The entry at this position goes; the position stays valid.
        await bench.store.remove(3, seen[-1], 1)

    assert seen == names


async def test_page_ends_once_it_holds_a_mebibyte(bench: Bench) -> None:
    payload = '"' + "x" * 400_000 + '"'
    for index in range(5):
        await bench.save(f"t{index}", index, payload=payload)

    page = await bench.scheduled()

    assert ids(page.triggers) == ["t0", "t1", "t2"]
    assert page.more
    assert ids((await bench.scheduled(after=page.end)).triggers) == ["t3", "t4"]


async def test_claimed_triggers_are_listed_by_end_of_lease(bench: Bench) -> None:
    for id in ("a", "b", "c"):
        await bench.save(id, 0)
    a, b, c = await bench.claim()
    await bench.extend(a, lease_ms=50_000)
    await bench.extend(c, lease_ms=40_000)

    assert ids((await bench.claimed()).triggers) == ["b", "c", "a"]
    first = await bench.claimed(limit=1)
    assert (ids(first.triggers), first.more) == (["b"], True)
    assert ids((await bench.claimed(after=first.end)).triggers) == ["c", "a"]
    assert (await bench.scheduled()).triggers == ()
    assert b.trigger.status is TriggerStatus.CLAIMED
