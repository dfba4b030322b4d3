"""Calls are counted per day up to the quota, refunded when refused, and counted anew the next day."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.servers import RedisServer
from tests.stores.access.bench import DAY, MINUTE, Bench, redis_bench
from tradewind.access.domain.day import day_of
from tradewind.access.domain.session import User
from tradewind.access.ports import Reserved
from tradewind.access.stores.redis import RedisAccess
from tradewind.access.use_cases.daily_quotas import DailyQuotas
from tradewind.server.access.roles import Role
from tradewind.server.clock import ManualClock
from tradewind.server.rates import Rate
from tradewind.server.redis.script import Script


async def test_quota_limits_a_day_and_the_next_day_starts_at_zero(bench: Bench) -> None:
    for user_id in ("ann", "bob"):
        await bench.users.set(user_id, Role.USER, "Europe/Berlin")
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


async def test_bulk_calls_are_counted_all_or_none_even_concurrently(bench: Bench) -> None:
    today = day_of("UTC", bench.clock.now_ms())
    assert await bench.quotas.reserve("ann", "RunFlow", today, 5, 3)
    assert not await bench.quotas.reserve("ann", "RunFlow", today, 5, 3)
    taken = await asyncio.gather(*(bench.quotas.reserve("ann", "RunFlow", today, 5) for _ in range(8)))
    assert sum(map(bool, taken)) == 2


async def test_day_of_another_time_zone_counts_nothing_and_returns_the_users_zone(bench: Bench) -> None:
    now = bench.clock.now_ms()
    tokyo = day_of("Asia/Tokyo", now)
    assert await bench.quotas.reserve("ann", "RunFlow", tokyo, 5) == Reserved(time_zone="UTC")
    await bench.users.set("ann", Role.USER, "Asia/Tokyo")
    assert await bench.quotas.reserve("ann", "RunFlow", tokyo, 5)
    assert await bench.quotas.reserve("ann", "RunFlow", day_of("UTC", now), 5) == Reserved(time_zone="Asia/Tokyo")
    assert await bench.quotas.used("ann", tokyo.date) == {"RunFlow": 1}


async def test_unknown_time_zone_counts_by_utc_and_is_logged_once(bench: Bench) -> None:
    await bench.users.set("ann", Role.USER, "Mars/Olympus")
    quotas = DailyQuotas(bench.users, bench.quotas, bench.clock, {"RunFlow": 2})
    today = day_of("UTC", bench.clock.now_ms())
    with capture_logs() as logs:
        for _ in range(2):
            assert (await quotas.reserve("ann", "RunFlow", 2, 1)).retry_after_s == 0
        refused = await quotas.reserve("ann", "RunFlow", 2, 1)
        day, used = await quotas.used("ann")

    assert (refused.date, refused.retry_after_s) == (today.date, today.left_ms / 1000)
    assert (day.ends_at, used) == (today.ends_at, {"RunFlow": (2, 2)})
    assert [(line["event"], line["time_zone"]) for line in logs] == [("time_zone_unknown", "Mars/Olympus")]


async def test_quota_and_rate_count_both_or_neither(bench: Bench) -> None:
    today, rate = day_of("UTC", bench.clock.now_ms()), Rate(3, 1000)
    assert await bench.quotas.reserve("ann", "RunFlow", today, 5, 2, rate)
    assert await bench.quotas.reserve("ann", "RunFlow", today, 5, 2, rate) == Reserved(wait_ms=1000)
    assert await bench.quotas.used("ann", today.date) == {"RunFlow": 2}
    assert await bench.quotas.reserve("ann", "RunFlow", today, 2, 1, rate) == Reserved(full=True)
    assert await bench.calls.admit("ann", "RunFlow", rate) == 0, "what the day did not hold is not counted by the rate"


async def test_quota_and_rate_need_one_round_trip(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second trip is needed only if the user's days turn out to begin at another time than assumed."""
    trips: list[str] = []
    clock, run, read = ManualClock(), RedisAccess.run, RedisAccess.read

    async def counted_run(self: RedisAccess, script: Script[Any], *args: Any, **more: Any) -> Any:
        trips.append(script.name)
        return await run(self, script, *args, **more)

    async def counted_read(self: RedisAccess, key: str) -> Any:
        trips.append("read")
        return await read(self, key)

    bench = redis_bench(redis_server, clock)
    quotas = DailyQuotas(bench.users, bench.quotas, clock, {})
    monkeypatch.setattr(RedisAccess, "run", counted_run)
    monkeypatch.setattr(RedisAccess, "read", counted_read)
    rate = Rate(2, MINUTE)
    assert (await quotas.reserve("ann", "RunFlow", 9, 1, rate)).time_zone == "UTC"
    assert trips == ["reserve_calls"]
    await bench.users.set("ann", Role.USER, "Asia/Tokyo")
    trips.clear()
    assert (await quotas.reserve("ann", "RunFlow", 9, 1, rate)).time_zone == "Asia/Tokyo"
    assert trips == ["reserve_calls"] * 2
    trips.clear()
    refused = await quotas.reserve("ann", "RunFlow", 9, 1, rate)
    assert (refused.rate_limited, refused.retry_after_s) == (True, 60.0)
    assert trips == ["reserve_calls"]
    await redis_server.close_clients()


async def test_refunded_calls_can_be_used_again_and_never_exceed_the_count(bench: Bench) -> None:
    today = day_of("UTC", bench.clock.now_ms())
    assert await bench.quotas.reserve("ann", "RunFlow", today, 5, 5)
    await bench.quotas.refund("ann", "RunFlow", today.date, 2)
    assert await bench.quotas.used("ann", today.date) == {"RunFlow": 3}
    await bench.quotas.refund("ann", "RunFlow", today.date, 10)
    await bench.quotas.refund("ann", "SubmitTask", today.date)
    assert await bench.quotas.used("ann", today.date) == {}
    assert not await bench.quotas.reserve("ann", "RunFlow", today, 5, 6)
    assert await bench.quotas.reserve("ann", "RunFlow", today, 5, 5)


async def test_time_zone_of_a_user_stays_until_another_is_set(bench: Bench) -> None:
    await bench.open("a")
    now = bench.clock.now_ms()
    assert (await bench.users.find("ann")) == User("ann", Role.USER, now, "UTC")
    assert (await bench.users.set("ann", Role.USER, "Asia/Tokyo")).time_zone == "Asia/Tokyo"
    bench.clock.advance(DAY)
    changed = User("ann", Role.OPERATOR, bench.clock.now_ms(), "Asia/Tokyo")
    assert await bench.users.set("ann", Role.OPERATOR) == changed
    assert await bench.users.find("ann") == changed
