"""Calls are counted for a day up to the quota, taken back when refused, and anew the next day."""

import asyncio

from tests.stores.access.bench import DAY, Bench
from tradewind.access.domain.day import day_of
from tradewind.access.domain.session import User
from tradewind.server.access.roles import Role


async def test_a_day_holds_its_quota_and_the_next_one_begins_with_none(bench: Bench) -> None:
    today = day_of("Europe/Berlin", bench.clock.now_ms())
    for _ in range(3):
        assert await bench.quotas.reserve("ann", "RunFlow", today, 3)
    for _ in range(2):
        assert not await bench.quotas.reserve("ann", "RunFlow", today, 3)
    assert await bench.quotas.used("ann", today.date) == {"RunFlow": 3}
    assert await bench.quotas.reserve("ann", "SubmitTask", today, 1)
    assert await bench.quotas.reserve("bob", "RunFlow", today, 1)
    tomorrow = day_of("Europe/Berlin", bench.clock.advance(today.left_ms))
    assert tomorrow.date > today.date
    assert await bench.quotas.used("ann", tomorrow.date) == {}
    assert await bench.quotas.reserve("ann", "RunFlow", tomorrow, 3)


async def test_many_are_counted_whole_or_not_at_all_also_at_once(bench: Bench) -> None:
    today = day_of("UTC", bench.clock.now_ms())
    assert await bench.quotas.reserve("ann", "RunFlow", today, 5, 3)
    assert not await bench.quotas.reserve("ann", "RunFlow", today, 5, 3)
    taken = await asyncio.gather(*(bench.quotas.reserve("ann", "RunFlow", today, 5) for _ in range(8)))
    assert sum(taken) == 2


async def test_what_is_refunded_may_be_used_again_and_no_more_than_was_counted(bench: Bench) -> None:
    today = day_of("UTC", bench.clock.now_ms())
    assert await bench.quotas.reserve("ann", "RunFlow", today, 5, 5)
    await bench.quotas.refund("ann", "RunFlow", today.date, 2)
    assert await bench.quotas.used("ann", today.date) == {"RunFlow": 3}
    await bench.quotas.refund("ann", "RunFlow", today.date, 10)
    await bench.quotas.refund("ann", "SubmitTask", today.date)
    assert await bench.quotas.used("ann", today.date) == {}
    assert not await bench.quotas.reserve("ann", "RunFlow", today, 5, 6)
    assert await bench.quotas.reserve("ann", "RunFlow", today, 5, 5)


async def test_a_user_has_a_time_zone_that_stays_until_another_one_is_set(bench: Bench) -> None:
    await bench.open("a")
    now = bench.clock.now_ms()
    assert (await bench.users.find("ann")) == User("ann", Role.USER, now, "UTC")
    assert (await bench.users.set("ann", Role.USER, "Asia/Tokyo")).time_zone == "Asia/Tokyo"
    bench.clock.advance(DAY)
    changed = User("ann", Role.OPERATOR, bench.clock.now_ms(), "Asia/Tokyo")
    assert await bench.users.set("ann", Role.OPERATOR) == changed
    assert await bench.users.find("ann") == changed
