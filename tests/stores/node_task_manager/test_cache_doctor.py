"""Each invariant of the caches is broken by hand, found and mended, and everything is well again."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from tests.servers import RedisServer
from tests.stores.node_task_manager.test_caches import ENTRY, KEYS, MOST, TTL, cache_store, fill
from tradewind.node_task_manager.domain.caching import Entry
from tradewind.node_task_manager.stores.redis_cache_doctor import RedisCacheDoctor
from tradewind.node_task_manager.stores.redis_caches import RedisCacheStore
from tradewind.node_task_manager.use_cases.doctor import ExamineShards
from tradewind.server.clock import ManualClock
from tradewind.server.doctor import Doctor
from tradewind.server.redis.client import Client

BASE = "trading_flow:{s0}:"
OTHER = Entry("screening", "d1")


@dataclass
class Ward:
    """The caches of one shard in Redis, and the store as its operator sees it."""

    caches: RedisCacheStore
    doctor: RedisCacheDoctor
    admin: Client
    clock: ManualClock

    async def do(self, verb: str, key: str, *rest: Any) -> Any:
        """Break something; `key` is given without its prefix."""
        return await self.admin.execute_command(verb, f"{BASE}{key}", *rest)

    async def found(self, *, mend: bool = False, background: bool = False) -> list[tuple[str, str, bool]]:
        examine = ExamineShards([], [self.doctor], lambda: ["screening", "analysis"], "here")

        async def examiners(everything: bool) -> Any:
            return await examine(not background)

        doctor = Doctor(examiners, recheck_s=0)
        steps = [step async for step in doctor.run(mend=mend)]
        return [(each.check, each.subject, each.mended) for step in steps for each in step.findings]


@pytest_asyncio.fixture
async def ward(embedded: RedisServer) -> AsyncIterator[Ward]:
    await embedded.flush()
    clock = ManualClock()
    caches = cache_store(embedded, clock, 1)
    doctor = RedisCacheDoctor(embedded.connect("node_task_manager"), KEYS[0], clock)
    ward = Ward(caches, doctor, embedded.connect(), clock)
    for entry in (ENTRY, OTHER):
        await fill(caches, entry)
    yield ward
    await embedded.close_clients()


BROKEN = [
    (("DEL", "cache:screening:d0"), "index-without-record", "cache:screening:d0"),
    (("PERSIST", "cache:screening:d0"), "no-time-to-live", "cache:screening:d0"),
    (("PERSIST", "cache_index:screening"), "no-time-to-live", "cache_index:screening"),
    (("PERSIST", "cache_generation:screening"), "no-time-to-live", "cache_generation:screening"),
    (("PEXPIRE", "cache_index:screening", 60_000), "cache-index-expires", "screening"),
]


@pytest.mark.parametrize(("command", "check", "subject"), BROKEN, ids=[f"{b[1]}-{b[0][1]}" for b in BROKEN])
async def test_doctor_finds_and_mends_broken_cache_keys(
    ward: Ward, command: tuple[Any, ...], check: str, subject: str
) -> None:
    assert await ward.found() == []
    await ward.do(*command)
    assert await ward.found() == [(check, subject, False)]
    assert await ward.found(mend=True) == [(check, subject, True)]
    assert await ward.found() == []
    assert (await ward.caches.look_up(OTHER, "b", 1000)).result == "[]"


async def test_doctor_accepts_evicted_cleared_and_expired_results(ward: Ward) -> None:
    await ward.caches.look_up(Entry("screening", "d2"), "filler", 1000)
    await fill(ward.caches, Entry("screening", "d3"), most=2)
    assert await ward.caches.size("screening") == 2
    assert await ward.found() == []
    await ward.caches.clear("screening")
    assert await ward.found() == []
    await fill(ward.caches, most=MOST)
    ward.clock.advance(TTL)
    await ward.do("DEL", "cache:screening:d0")
    assert await ward.found() == []


async def test_background_doctor_examines_caches_only_while_leading_the_cleaning(ward: Ward) -> None:
    await ward.do("DEL", "cache:screening:d0")
    assert await ward.found(background=True) == []
    await ward.do("SET", "cleaner", "here")
    assert [check for check, _, _ in await ward.found(background=True)] == ["index-without-record"]
