"""Every sentence of the caches' contract, for every store, and random use compared with memory."""

import asyncio
import random
from dataclasses import replace

import pytest

from tests.servers import RedisServer
from tradewind.node_task_manager.domain.caching import Entry
from tradewind.node_task_manager.ports.caches import CacheLookup, CacheStatistics, CacheStore
from tradewind.node_task_manager.stores.keys import Keys
from tradewind.node_task_manager.stores.memory.caches import MemoryCacheStatistics, MemoryCacheStore
from tradewind.node_task_manager.stores.redis_caches import RedisCacheStatistics, RedisCacheStore
from tradewind.server.clock import ManualClock

ENTRY = Entry("screening", "d0")
KEYS = {at: Keys("trading_flow", at) for at in range(3)}
FLIGHT, TTL, MOST = 30_000, 3_600_000, 100


def cache_store(server: RedisServer, clock: ManualClock, shards: int = 3) -> RedisCacheStore:
    """Return caches that are spread over shards, logged in as the service."""
    return RedisCacheStore(server.connect("node_task_manager"), {at: KEYS[at] for at in range(shards)}, clock)


@pytest.fixture
def caches(store: RedisServer | None, clock: ManualClock) -> CacheStore:
    """Empty caches."""
    return MemoryCacheStore(clock) if store is None else cache_store(store, clock)


async def fill(caches: CacheStore, entry: Entry = ENTRY, result: str = "[]", most: int = MOST) -> tuple[bool, int]:
    """Work out a result and put it in."""
    looked = await caches.look_up(entry, "filler", FLIGHT)
    assert (looked.result, looked.busy_ms) == ("", 0)
    return await caches.fill(entry, "filler", looked.generation, result, TTL, most)


async def test_result_is_found_until_it_expires(caches: CacheStore, clock: ManualClock) -> None:
    assert await fill(caches, result='[["out","é"]]') == (True, 0)
    assert (await caches.look_up(ENTRY, "b", FLIGHT)).result == '[["out","é"]]'
    assert (await caches.look_up(replace(ENTRY, cache="analysis"), "b", FLIGHT)).result == ""
    assert await caches.size("screening") == 1
    clock.advance(TTL)
    assert (await caches.look_up(ENTRY, "b", FLIGHT)).result == ""
    assert await caches.size("screening") == 0


async def test_one_of_twenty_concurrent_lookups_computes_the_result(caches: CacheStore) -> None:
    looks = await asyncio.gather(*(caches.look_up(ENTRY, f"t{at}", FLIGHT) for at in range(20)))
    assert sorted(look.busy_ms > 0 for look in looks) == [False, *[True] * 19]
    chosen = next(at for at, look in enumerate(looks) if not look.busy_ms)
    refused = await caches.fill(ENTRY, f"t{(chosen + 1) % 20}", looks[0].generation, "[]", TTL, MOST)
    assert refused == (False, 0)
    assert (await caches.look_up(ENTRY, f"t{chosen}", FLIGHT)).busy_ms == 0
    assert await caches.fill(ENTRY, f"t{chosen}", looks[0].generation, "[]", TTL, MOST) == (True, 0)
    looks = await asyncio.gather(*(caches.look_up(ENTRY, f"t{at}", FLIGHT) for at in range(20)))
    assert {(look.result, look.busy_ms) for look in looks} == {("[]", 0)}


async def test_flight_that_is_not_renewed_lapses_and_its_result_is_refused(
    caches: CacheStore, clock: ManualClock
) -> None:
    first = await caches.look_up(ENTRY, "a", FLIGHT)
    clock.advance(FLIGHT - 1)
    assert (await caches.look_up(ENTRY, "b", FLIGHT)).busy_ms == 1
    assert await caches.extend(ENTRY, "a", first.generation, FLIGHT)
    assert not await caches.extend(ENTRY, "b", first.generation, FLIGHT)
    clock.advance(FLIGHT)
    assert not await caches.extend(ENTRY, "a", first.generation, FLIGHT)
    assert (await caches.look_up(ENTRY, "b", FLIGHT)).busy_ms == 0
    assert await caches.fill(ENTRY, "a", first.generation, "[1]", TTL, MOST) == (False, 0)
    assert await caches.fill(ENTRY, "b", first.generation, "[2]", TTL, MOST) == (True, 0)
    assert (await caches.look_up(ENTRY, "c", FLIGHT)).result == "[2]"


async def test_abandoned_flight_lets_the_next_lookup_compute(caches: CacheStore) -> None:
    first = await caches.look_up(ENTRY, "a", FLIGHT)
    assert not await caches.extend(ENTRY, "b", first.generation, 0)
    assert await caches.extend(ENTRY, "a", first.generation, 0)
    assert (await caches.look_up(ENTRY, "b", FLIGHT)).busy_ms == 0


async def test_clearing_removes_results_and_refuses_those_in_flight(caches: CacheStore) -> None:
    other, kept = replace(ENTRY, digest="d1"), replace(ENTRY, cache="analysis")
    await fill(caches)
    await fill(caches, kept)
    under_way = await caches.look_up(other, "a", FLIGHT)
    assert await caches.clear("screening") == 1
    assert await caches.size("screening") == 0
    assert await caches.fill(other, "a", under_way.generation, "[1]", TTL, MOST) == (False, 0)
    assert not await caches.extend(other, "b", under_way.generation, FLIGHT)
    for entry in (ENTRY, other):
        looked = await caches.look_up(entry, "b", FLIGHT)
        assert (looked.result, looked.busy_ms, looked.generation == under_way.generation) == ("", 0, False)
    assert (await caches.look_up(kept, "b", FLIGHT)).result == "[]"


async def test_clearing_removes_1700_results(store: RedisServer | None, caches: CacheStore) -> None:
    for first in range(0, 1700, 100):
        entries = [Entry("screening", f"d{at}") for at in range(first, first + 100)]
        await asyncio.gather(*(fill(caches, entry, most=10_000) for entry in entries))
    assert await caches.clear("screening") == 1700
    if store is not None:
        assert [key for key in await store.keys() if ":cache:" in key or ":cache_index:" in key] == []


async def test_full_cache_evicts_the_results_that_expire_first(store: RedisServer | None, clock: ManualClock) -> None:
    caches: CacheStore = MemoryCacheStore(clock) if store is None else cache_store(store, clock, shards=1)
    for at in range(5):
        clock.advance(1)
        assert await fill(caches, Entry("screening", f"d{at}"), most=3) == (True, int(at >= 3))
    looks = [await caches.look_up(Entry("screening", f"d{at}"), "x", FLIGHT) for at in range(5)]
    assert [bool(look.result) for look in looks] == [False, False, True, True, True]
    assert await caches.size("screening") == 3


async def test_all_cache_keys_have_a_time_to_live(redis_server: RedisServer, clock: ManualClock) -> None:
    caches = cache_store(redis_server, clock)
    await fill(caches)
    await caches.look_up(replace(ENTRY, digest="d1"), "a", FLIGHT)
    assert len(await redis_server.keys()) >= 4
    assert await redis_server.keys_without_ttl() == []


async def test_cache_statistics_add_up(store: RedisServer | None) -> None:
    statistics: CacheStatistics = MemoryCacheStatistics()
    if store is not None:
        statistics = RedisCacheStatistics(store.connect("node_task_manager"), KEYS[0])
    await statistics.add({"screening:hits": 2, "mine:misses": 1})
    await statistics.add({"screening:hits": 3})
    assert await statistics.read() == {"screening:hits": 5, "mine:misses": 1}


class RandomCalls:
    """Makes the same random calls on two stores. Times are long, as entries in Redis also expire by its own clock."""

    def __init__(self, rng: random.Random, clock: ManualClock, stores: list[CacheStore]) -> None:
        self.rng, self.clock, self.stores = rng, clock, stores
        self.entries = [Entry(name, f"d{at}") for name in ("screening", "mine") for at in range(3)]
        self.generations: dict[tuple[Entry, str], list[str]] = {}
        self.numbers = 0

    async def step(self) -> list[CacheLookup | None]:
        entry, token = self.rng.choice(self.entries), self.rng.choice("abc")
        verb = self.rng.choices(("look", "fill", "keep", "clear", "wait"), (6, 4, 2, 0.5, 2))[0]
        if verb == "wait":
            self.clock.advance(self.rng.choice((1, 90_000, 4_000_000)))
        elif verb == "clear":
            of_memory, *others = [await store.clear(entry.cache) for store in self.stores]
            # Expired entries may still have been there.
            assert all(of_memory <= count for count in others)
        elif verb == "look":
            flight = self.rng.choice((60_000, 6_000_000))
            looks = [await store.look_up(entry, token, flight) for store in self.stores]
            self.generations[entry, token] = [look.generation for look in looks]
            return list(looks)
        elif (entry, token) in self.generations:
            known = self.generations[entry, token]
            self.numbers += 1
            given = list(zip(self.stores, known, strict=True))
            if verb == "keep":
                done: list[object] = [await store.extend(entry, token, of, 60_000) for store, of in given]
            else:
                done = [await store.fill(entry, token, of, f"[{self.numbers}]", 5_000_000, 2) for store, of in given]
            assert len(set(done)) == 1, (verb, entry, token)
        sizes = [await store.size(entry.cache) for store in self.stores]
        assert len(set(sizes)) == 1
        return []


@pytest.mark.parametrize("seed", range(4))
async def test_redis_caches_behave_like_memory(redis_server: RedisServer, clock: ManualClock, seed: int) -> None:
    stores: list[CacheStore] = [MemoryCacheStore(clock), cache_store(redis_server, clock, shards=1)]
    calls = RandomCalls(random.Random(seed), clock, stores)
    for _ in range(250):
        looks = [look for look in await calls.step() if look is not None]
        assert len({(look.result, look.busy_ms) for look in looks}) <= 1


@pytest.mark.parametrize("seed", range(4))
async def test_random_eviction_never_yields_wrong_or_stale_results(
    redis_server: RedisServer, clock: ManualClock, seed: int
) -> None:
    """The store evicts keys at random: look-ups then miss, but results that are found are those of the last fill."""
    caches, rng = cache_store(redis_server, clock), random.Random(seed)
    last: dict[Entry, str] = {}
    entries = [Entry("screening", f"d{at}") for at in range(3)]
    in_flight: dict[Entry, tuple[str, str]] = {}
    hits = 0
    for number in range(250):
        entry, token = rng.choice(entries), f"t{number}"
        if rng.random() < 0.15:
            for node in redis_server.nodes:
                for key in await redis_server.on_node(node, "KEYS", "*"):
                    if rng.random() < 0.3:
                        await redis_server.on_node(node, "UNLINK", key.decode())
        if rng.random() < 0.05:
            await caches.clear("screening")
            last.clear()
        looked = await caches.look_up(entry, token, FLIGHT)
        if looked.result:
            hits += 1
            assert looked.result == last.get(entry)
        elif not looked.busy_ms:
            in_flight[entry] = (token, looked.generation)
        if entry in in_flight and rng.random() < 0.7:
            holder, generation = in_flight.pop(entry)
            filled, _ = await caches.fill(entry, holder, generation, f"[{number}]", TTL, MOST)
            if filled:
                last[entry] = f"[{number}]"
    assert hits > 10
