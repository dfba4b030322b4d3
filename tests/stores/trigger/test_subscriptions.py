"""Which receiver a partition belongs to, and what becomes of the claims of the one before, for every store."""

import pytest

from tests.stores.trigger.bench import Bench, ids
from tradewind.trigger.domain.policy import FORMER_LEASE_MS, REAP_LIMIT
from tradewind.trigger.domain.schedule import Schedule
from tradewind.trigger.domain.trigger import TriggerStatus
from tradewind.trigger.ports.claims import Heads, Survey


async def test_higher_epoch_takes_the_partition_and_lower_epoch_is_refused(bench: Bench) -> None:
    await bench.save("tick", 0)
    assert await bench.subscribe(5, "old") == Survey(Heads(bench.now, None), bench.now * 1000)
    assert isinstance(await bench.subscribe(6, "new"), Survey)

    assert await bench.subscribe(5, "old") == 6
    assert (await bench.order(epoch=5, session="old")).survey is None
    assert (await bench.found("tick")).status is TriggerStatus.SCHEDULED
    assert ids(await bench.claim(epoch=6, session="new")) == ["tick"]


async def test_new_session_of_same_epoch_takes_the_partition(bench: Bench) -> None:
    await bench.save("tick", 0)
    await bench.subscribe(5, "before")
    await bench.subscribe(5, "after")

    assert (await bench.order(epoch=5, session="before")).survey is None
    assert ids(await bench.claim(epoch=5, session="after")) == ["tick"]


async def test_claim_with_a_higher_epoch_takes_the_partition(bench: Bench) -> None:
    await bench.save("tick", 0)
    await bench.subscribe(5, "old")

    assert ids(await bench.claim(epoch=6, session="new")) == ["tick"]
    assert await bench.subscribe(5, "old") == 6


async def test_claims_of_the_previous_receiver_can_still_be_acked(bench: Bench) -> None:
    await bench.save("tick", Schedule.every(1000, bench.now))
    await bench.subscribe(1, "old")
    due = await bench.claim_one_of("old")
    await bench.subscribe(2, "new")

    assert (await bench.ack(due, session="old")).lost == frozenset()


async def test_claims_of_the_previous_receiver_lapse_soon(bench: Bench) -> None:
    await bench.save("tick", Schedule.every(1000, bench.now))
    await bench.save("tock", Schedule.every(1000, bench.now))
    await bench.subscribe(1, "old")
    short, long = await bench.claim(1, session="old", lease_ms=500), await bench.claim(1, session="old")
    await bench.subscribe(1, "old")
    await bench.subscribe(2, "old")
    assert await bench.claim(epoch=2, session="old") == []
    assert await bench.subscribe(3, "new") == Survey(Heads(None, bench.now + 500), bench.now * 1000)

    bench.clock.advance(FORMER_LEASE_MS - 1)
    assert ids(await bench.claim(epoch=3, session="new")) == ids(short)
    bench.clock.advance(1)
    (again,) = await bench.claim(epoch=3, session="new")
    assert (again.trigger.id, again.trigger.planned_ms) == (long[0].trigger.id, long[0].trigger.planned_ms)
    assert (await bench.ack(*long, session="old")).lost == {long[0].token}


@pytest.mark.parametrize("epoch", [1, 2])
async def test_all_claims_of_the_previous_receiver_lapse_soon_however_many(bench: Bench, epoch: int) -> None:
    names = {f"t{at}" for at in range(2 * REAP_LIMIT + 50)}
    for name in names:
        await bench.save(name)
    await bench.subscribe(1, "old")
    assert {name for _ in range(3) for name in ids(await bench.claim(session="old"))} == names
    await bench.subscribe(epoch, "new")

    bench.clock.advance(FORMER_LEASE_MS)
    assert {name for _ in range(6) for name in ids(await bench.claim(epoch=epoch, session="new"))} == names


async def test_new_session_of_same_epoch_gets_what_the_one_before_had_claimed(bench: Bench) -> None:
    await bench.save("tick", Schedule.every(1000, bench.now))
    await bench.subscribe(5, "before")
    (before,) = await bench.claim(epoch=5, session="before")

    await bench.subscribe(5, "before")
    assert await bench.claim(epoch=5, session="before") == []
    assert await bench.subscribe(5, "after") == Survey(Heads(bench.now, None), bench.now * 1000)

    (again,) = await bench.claim(epoch=5, session="after")
    assert (again.trigger.planned_ms, again.trigger.failures) == (before.trigger.planned_ms, 0)
    assert (await bench.ack(before, session="before")).lost == {before.token}
    assert (await bench.ack(again, session="after")).lost == frozenset()


async def test_partitions_are_independent(bench: Bench) -> None:
    await bench.save("tick", 0, partition=3)
    await bench.save("tick", 50, partition=4)

    due, survey = await bench.store.poll([3, 4, 5], survey=4)

    assert due == {3: bench.now, 4: bench.now + 50, 5: None}
    assert survey == Survey(Heads(bench.now + 50, None), bench.now * 1000)
    assert ids(await bench.claim(partition=4)) == []
    assert ids(await bench.claim(partition=3)) == ["tick"]
    _, survey = await bench.store.poll([4], survey=3)
    assert survey.heads == Heads(None, bench.now + 30_000)
