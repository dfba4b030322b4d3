"""Withdrawing claim orders whose answer never came, for every store."""

import asyncio
from typing import Any

import pytest

from tests.stores.trigger.bench import HOUR, PARTITION, Bench, ids
from tradewind.trigger.domain.claim import SHARED
from tradewind.trigger.domain.schedule import Schedule
from tradewind.trigger.domain.trigger import TriggerStatus
from tradewind.trigger.stores import redis


async def test_triggers_of_a_withdrawn_order_are_due_at_once_without_a_failure(bench: Bench) -> None:
    await bench.save("tick", Schedule.every(1000, bench.now))
    (lost,) = await bench.claim(nonce="lost")
    bench.clock.advance(5000)

    await bench.withdraw("lost")

    again = await bench.claim_one()
    assert (again.trigger.failures, again.trigger.planned_ms) == (0, lost.trigger.planned_ms)
    assert (await bench.ack(lost)).lost == {lost.token}
    assert (await bench.ack(again)).lost == frozenset()


async def test_withdrawing_keeps_claims_of_other_orders(bench: Bench) -> None:
    for nonce in ("1", "a1", "lost", "1a"):
        await bench.save(nonce, 0)
        await bench.claim(nonce=nonce)
    before = (await bench.claimed()).triggers

    await bench.withdraw("unknown")
    await bench.withdraw("1")

    assert ids((await bench.scheduled()).triggers) == ["1"]
    assert (await bench.claimed()).triggers == tuple(trigger for trigger in before if trigger.id != "1")


async def test_withdrawing_twice_keeps_the_next_claim(bench: Bench) -> None:
    await bench.save("tick", 0)
    await bench.claim(nonce="lost")
    await bench.withdraw("lost")
    due = await bench.claim_one()

    await bench.withdraw("lost")

    assert (await bench.ack(due)).lost == frozenset()


async def test_trigger_paused_before_a_withdrawal_stays_paused(bench: Bench) -> None:
    await bench.save("tick", 0)
    await bench.claim(nonce="lost")
    await bench.queues.pause(PARTITION, "", "tick", "wait")

    await bench.withdraw("lost")

    assert (await bench.found("tick")).status is TriggerStatus.PAUSED
    assert await bench.claim() == []


async def test_order_with_many_claims_is_withdrawn_completely(bench: Bench) -> None:
    async def claimed(name: str) -> None:
        await asyncio.gather(*(bench.save(f"{name}{index:03}", 0) for index in range(300)))
        for limit in (200, 100):
            assert len(await bench.claim(limit, nonce=name)) == limit
        bench.clock.advance(1)

    for name in ("a", "b", "c"):
        await claimed(name)

    await bench.withdraw("b")

    assert ids((await bench.scheduled(limit=1000)).triggers) == [f"b{index:03}" for index in range(300)]
    assert len((await bench.claimed(limit=1000)).triggers) == 600


async def test_withdrawal_is_complete_even_if_another_lease_is_shortened_meanwhile(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.gather(*(bench.save(f"lost{index:03}", 0) for index in range(300)))
    for limit in (200, 100):
        assert len(await bench.claim(limit, nonce="lost")) == limit
    await bench.save("other", 0)
    (other,) = await bench.claim(lease_ms=60_000)
    # A store with scripts needs more than one call for so many claims.
    withdraw_some = redis._WITHDRAW.each

    async def withdraw_some_and_shorten(*call: Any) -> list[Any]:
        replies = await withdraw_some(*call)
        await bench.extend(other, lease_ms=1)
        return replies

    monkeypatch.setattr(redis._WITHDRAW, "each", withdraw_some_and_shorten)
    await bench.withdraw("lost")

    assert ids((await bench.claimed(limit=1000)).triggers) == ["other"]


async def test_withdrawal_covers_many_partitions_but_each_queue_separately(
    bench: Bench,
) -> None:
    queue = Bench(bench.store.of_queue("q"), bench.clock, bench.queues)
    for at in (0, 7, 15):
        await bench.save("tick", 0, partition=at)
        await bench.claim(partition=at, nonce="lost")
    await queue.save("tick", 0)
    await queue.claim(epoch=SHARED, nonce="lost")

    await bench.withdraw("lost", 0, 15, PARTITION)

    due, _ = await bench.store.poll([0, 7, 15], survey=0)
    assert due == {0: bench.now, 7: None, 15: bench.now}
    assert (await queue.found("tick")).status is TriggerStatus.CLAIMED
    bench.clock.advance(HOUR)
    await queue.withdraw("lost")
    assert (await queue.found("tick")).status is TriggerStatus.SCHEDULED
