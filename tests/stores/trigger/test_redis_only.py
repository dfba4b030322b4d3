"""What only Redis has: lifetimes of keys, damaged data, forgotten scripts, limits per script."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.no_writes import refusing_writes
from tests.servers import RedisServer, assert_no_leaked_keys
from tests.stores.trigger.bench import (
    DAY,
    HOUR,
    LASTING_KEYS,
    PARTITION,
    POLICY,
    Bench,
    ids,
    queue_store,
    redis_store,
    token,
)
from tradewind.server.clock import ManualClock, ScriptTime
from tradewind.server.redis.client import Client, connect
from tradewind.server.redis.embedded import EmbeddedStore
from tradewind.server.redis.script import Script
from tradewind.server.schedules.event_filter import EventFilter
from tradewind.trigger.domain.claim import SHARED, Ack, Subscription
from tradewind.trigger.domain.event import Event, Outcome
from tradewind.trigger.domain.schedule import OnEvent, Schedule
from tradewind.trigger.domain.trigger import TriggerDraft
from tradewind.trigger.ports.claims import ClaimOrder, Heads
from tradewind.trigger.ports.queues import FiringOrder
from tradewind.trigger.ports.triggers import Page
from tradewind.trigger.stores.keys import ACL, Keys
from tradewind.trigger.stores.redis import RedisTriggerStore
from tradewind.trigger.stores.redis_doctor import RedisIndexExaminer
from tradewind.trigger.stores.redis_queues import RedisQueueStore

KEYS = Keys()


@pytest_asyncio.fixture
async def redis_bench(redis_server: RedisServer, clock: ManualClock) -> AsyncIterator[Bench]:
    """A bench over a store in Redis."""
    store = redis_store(redis_server, clock)
    yield Bench(store, clock, queue_store(redis_server, store))
    await assert_no_leaked_keys(redis_server, LASTING_KEYS)


@pytest_asyncio.fixture
async def client(redis_server: RedisServer) -> Client:
    """A client that is logged in as the service's own user."""
    return redis_server.connect(ACL.name)


async def ttl(client: Client, key: str) -> int:
    return await client.pttl(key)


async def test_triggers_are_read_while_the_store_takes_no_writes(redis_bench: Bench, redis_server: RedisServer) -> None:
    await redis_bench.save("far", HOUR)
    trigger = await redis_bench.found("far")
    async with refusing_writes(redis_server, "the store is out of memory and accepts no writes"):
        assert await redis_bench.found("far") == trigger
        page = await redis_bench.store.page_scheduled(PARTITION, None, None, 10)
        assert list(page.triggers) == [trigger]
        assert (await redis_bench.queues.counts(PARTITION, "")).scheduled == 1


async def test_pending_triggers_never_expire_and_ended_ones_do(redis_bench: Bench, client: Client) -> None:
    await redis_bench.save("far", 30 * DAY)
    await redis_bench.save("held", 0)
    await redis_bench.claim()
    await redis_bench.save("done", 0)
    await redis_bench.ack(*await redis_bench.claim())
    await redis_bench.save("dead", 0)
    for _ in range(4):
        await redis_bench.nack(await redis_bench.claim_one(), retry_after_ms=0)
    await redis_bench.save("gone", 0)
    await redis_bench.store.remove(PARTITION, "gone", 1)

    assert await ttl(client, KEYS.trigger(PARTITION, "far")) == -1
    assert await ttl(client, KEYS.trigger(PARTITION, "held")) == -1
    for name in ("done", "dead"):
        assert 6 * DAY < await ttl(client, KEYS.trigger(PARTITION, name)) <= 7 * DAY
    assert await ttl(client, KEYS.trigger(PARTITION, "gone")) == -2
    assert HOUR - 60_000 < await ttl(client, KEYS.removed(PARTITION, "gone")) <= HOUR


async def test_firing_of_a_removed_trigger_is_removed_when_it_is_due(redis_bench: Bench, client: Client) -> None:
    queue, keys = redis_bench.store.of_queue("q"), Keys(queue_name="q")
    await queue.save(PARTITION, TriggerDraft("a", "q", Schedule(OnEvent("tick", EventFilter("")))))
    await redis_bench.queues.fire([FiringOrder(PARTITION, "q", "a")], Event("e1", "tick"))
    (firing,) = (await queue.page_scheduled(PARTITION, None, None, 10)).triggers
    await queue.remove(PARTITION, "a", 0)
    assert await ttl(client, keys.trigger(PARTITION, firing.id)) == -1

    (claims,) = await queue.claim_due([ClaimOrder(Subscription(PARTITION, SHARED, "s"), 10, 1000, "n")])

    assert (claims.due, claims.orphans) == ((), ())
    assert await ttl(client, keys.trigger(PARTITION, firing.id)) == -2


async def test_restarted_trigger_no_longer_expires(redis_bench: Bench, client: Client) -> None:
    schedule = Schedule.once(redis_bench.now)
    await redis_bench.save("again", schedule)
    await redis_bench.ack(await redis_bench.claim_one())

    await redis_bench.save("again", schedule, epoch=2)

    assert await ttl(client, KEYS.trigger(PARTITION, "again")) == -1


async def test_index_entries_without_a_trigger_are_removed_and_reported(redis_bench: Bench, client: Client) -> None:
    for name in ("lost", "sound", "strange", "held"):
        await redis_bench.save(name, 0)
    await client.delete(KEYS.trigger(PARTITION, "lost"), KEYS.trigger(PARTITION, "strange"))
    await client.set(KEYS.trigger(PARTITION, "strange"), "no hash", px=60_000)

    claims = await redis_bench.order()
    assert ids(claims.due) == ["held", "sound"]
    assert claims.orphans == ("lost", "strange")
    await client.delete(KEYS.trigger(PARTITION, "held"))
    redis_bench.clock.advance(30_000)
    again = await redis_bench.order()

    assert ids(again.due) == ["sound"]
    assert again.orphans == ("held",)
    assert (await redis_bench.order()).orphans == ()


async def test_index_entries_of_another_status_are_removed_but_not_reported(redis_bench: Bench, client: Client) -> None:
    for name in ("due", "held"):
        await redis_bench.save(name, 0)
    await client.hset(KEYS.trigger(PARTITION, "due"), mapping={"status": "dead"})

    claims = await redis_bench.order()
    assert (ids(claims.due), claims.orphans) == (["held"], ())
    await client.hset(KEYS.trigger(PARTITION, "held"), mapping={"status": "dead"})
    redis_bench.clock.advance(30_000)
    again = await redis_bench.order()

    assert (ids(again.due), again.orphans) == ([], ())
    assert again.survey is not None
    assert again.survey.heads == Heads()


async def test_flushed_scripts_are_loaded_again(redis_bench: Bench, redis_server: RedisServer) -> None:
    await redis_bench.save("tick", Schedule.every(1000, redis_bench.now))
    for _ in range(2):
        due, survey = await redis_bench.store.poll([PARTITION], survey=PARTITION)
        assert due == {PARTITION: survey.heads.due_ms}
        await redis_bench.ack(await redis_bench.claim_one())
        redis_bench.clock.advance(1000)
        for node in redis_server.nodes:
            await redis_server.on_node(node, "FUNCTION", "FLUSH")


async def test_acks_beyond_the_script_limit_are_split(redis_bench: Bench) -> None:
    await asyncio.gather(
        *(redis_bench.save(f"t{index:03}", Schedule.every(1000, redis_bench.now)) for index in range(600))
    )
    due = [*await redis_bench.claim(1000), *await redis_bench.claim(1000), *await redis_bench.claim(1000)]
    assert len(due) == 600

    settled = await redis_bench.ack(*due, due[0])

    assert settled.lost == {due[0].token}
    assert settled.heads[PARTITION].lapse_ms is None
    page = await redis_bench.scheduled(limit=1000)
    assert {trigger.planned_ms for trigger in page.triggers} == {redis_bench.now + 1000}


async def test_script_time_is_the_servers_clock_in_microseconds(redis_server: RedisServer) -> None:
    store = RedisTriggerStore(redis_server.connect(ACL.name), KEYS, ScriptTime())
    asked_us = time.time_ns() // 1000

    _, survey = await store.poll([PARTITION], survey=PARTITION)

    assert asked_us - 1000 <= survey.now_us <= time.time_ns() // 1000 + 1000
    assert survey.now_us % 1000 or (await store.poll([], survey=PARTITION))[1].now_us % 1000


async def test_sweep_removes_and_counts_orphaned_entries_and_restores_missing_ones(
    redis_bench: Bench, client: Client
) -> None:
    queue, keys = redis_bench.store.of_queue("q"), Keys(queue_name="q")
    for id in ("lost", "held", "kept", "forgotten"):
        await queue.save(PARTITION, TriggerDraft(id, "q", Schedule.once(redis_bench.now + HOUR)))
    await queue.save(PARTITION, TriggerDraft("due", "q", Schedule.once(redis_bench.now)))
    on_tick = OnEvent("tick", EventFilter(""))
    for id in ("listens", "paused"):
        await queue.save(PARTITION, TriggerDraft(id, "q", Schedule(on_tick)))
    await redis_bench.queues.pause(PARTITION, "q", "paused", "")
    order = ClaimOrder(Subscription(PARTITION, SHARED, "s"), 10, 1000, "n")
    await queue.save(PARTITION, TriggerDraft("over", "q", Schedule(on_tick, max_firings=1)))
    await redis_bench.queues.fire([FiringOrder(PARTITION, "q", "over")], Event("e1", "tick"))
    (claims,) = await queue.claim_due([order])
    await queue.ack([Ack(token(one.token)) for one in claims.due if one.parent is not None], "s")
    await client.delete(keys.trigger(PARTITION, "lost"), keys.trigger(PARTITION, "due"))
    await client.execute_command("ZREM", keys.due(PARTITION), "forgotten")
    await client.execute_command("HDEL", keys.event(PARTITION, "tick"), "q/listens", "q/paused")

    swept = {
        index: await redis_bench.queues.sweep(PARTITION, "q", index, 0) for index in ("all", "due", "claimed", "dead")
    }

    assert sorted(swept["all"].mended) == ["forgotten", "listens", "paused"]
    assert (swept["due"].orphans, swept["claimed"].orphans) == (("lost",), ("due",))
    counts = await redis_bench.queues.counts(PARTITION, "q")
    assert (counts.orphans, counts.scheduled, counts.claimed, counts.triggers) == (2, 3, 0, 6)
    assert sorted(one.trigger_id for one in await redis_bench.queues.listeners("tick")) == ["listens", "paused"]


@pytest.mark.parametrize("queue", ["", "q"])
async def test_trigger_lost_from_the_listeners_of_its_event_listens_again_when_it_is_saved_again(
    redis_bench: Bench, client: Client, queue: str
) -> None:
    store, draft = redis_bench.store.of_queue(queue), TriggerDraft("t", "f", Schedule(OnEvent("tick", EventFilter(""))))
    saved = await store.save(PARTITION, draft)
    assert await store.find(PARTITION, "t") == saved
    await client.delete(KEYS.event(PARTITION, "tick"))

    assert await store.find(PARTITION, "t") == (saved if queue else None), "the doctor looks through queues"

    again = await store.save(PARTITION, draft)
    assert again == replace(saved, revision=saved.revision + 1) == await store.find(PARTITION, "t")
    assert [one.trigger_id for one in await redis_bench.queues.listeners("tick")] == ["t"]


async def test_firing_in_place_of_one_whose_retention_has_passed_does_not_expire(
    redis_bench: Bench, client: Client
) -> None:
    bench = Bench(redis_bench.store.of_queue("q"), redis_bench.clock, redis_bench.queues)
    order, event = [FiringOrder(PARTITION, "q", "t")], Event("e1", "tick")
    await bench.save("t", Schedule(OnEvent("tick", EventFilter(""))))
    await bench.queues.fire(order, event)
    for _ in range(POLICY.max_failures):
        await bench.nack(*await bench.claim(epoch=SHARED), retry_after_ms=0)
    (dead,) = (await bench.queues.page_dead(PARTITION, "q", None, 10)).triggers
    bench.clock.advance(POLICY.retention_ms)
    assert await bench.queues.fire(order, event) == [Outcome.FIRED]
    assert await client.pttl(Keys(queue_name="q").trigger(PARTITION, dead.id)) == -1


async def sweep_queue(bench: Bench, queue: str) -> None:
    for index in ("all", "due", "claimed", "dead"):
        await bench.queues.sweep(PARTITION, queue, index, 0)


async def test_sweep_forgets_empty_queues_and_lets_their_history_expire(redis_bench: Bench, client: Client) -> None:
    queue, keys = redis_bench.store.of_queue("q"), Keys(queue_name="q")
    order = ClaimOrder(Subscription(PARTITION, SHARED, "s"), 10, 1000, "n")

    async def fire() -> None:
        await queue.save(PARTITION, TriggerDraft("one", "q", Schedule.once(redis_bench.now)))
        (claims,) = await queue.claim_due([order])
        await queue.ack([Ack(token(one.token)) for one in claims.due], "s")

    await fire()
    await sweep_queue(redis_bench, "q")
    assert await redis_bench.queues.queues(PARTITION) == ["q"]
    assert await ttl(client, keys.firings(PARTITION)) == -1

    await client.execute_command("ZADD", keys.due(PARTITION), redis_bench.now, "lost")
    await sweep_queue(redis_bench, "q")
    assert (await redis_bench.queues.counts(PARTITION, "q")).orphans == 1
    await queue.remove(PARTITION, "one", 0)
    await sweep_queue(redis_bench, "q")
    assert await redis_bench.queues.queues(PARTITION) == []
    assert (await redis_bench.queues.counts(PARTITION, "q")).orphans == 0
    assert 6 * DAY < await ttl(client, keys.firings(PARTITION)) <= 7 * DAY

    await fire()
    assert await redis_bench.queues.queues(PARTITION) == ["q"]
    assert await ttl(client, keys.firings(PARTITION)) == -1
    assert len((await redis_bench.queues.firings(PARTITION, "q", "", 10))[0]) == 2


async def test_redriven_trigger_expires_no_more(redis_bench: Bench, client: Client) -> None:
    queues, key = redis_bench.queues, KEYS.of_queue("q").trigger(PARTITION, "dead")
    bench = Bench(redis_bench.store.of_queue("q"), redis_bench.clock, queues)
    await bench.save("dead")
    for _ in range(4):
        await bench.nack(*await bench.claim(epoch=SHARED), retry_after_ms=0)
    assert await ttl(client, key) > 0
    await queues.redrive(PARTITION, "q", "dead")
    assert await ttl(client, key) == -1


async def test_doctor_reports_lost_triggers_but_not_expired_ones(redis_bench: Bench, client: Client) -> None:
    queue, queues = redis_bench.store.of_queue("q"), redis_bench.queues
    assert isinstance(queues, RedisQueueStore)
    bench = Bench(queue, redis_bench.clock, queues)
    await bench.save("done")
    await bench.ack(*await bench.claim(epoch=SHARED))
    await bench.save("dead")
    for _ in range(4):
        await bench.nack(*await bench.claim(epoch=SHARED), retry_after_ms=0)
    bench.clock.advance(7 * DAY)
    await bench.save("lost", HOUR)
    await client.delete(KEYS.of_queue("q").trigger(PARTITION, "lost"))

    looks = {
        index: await RedisIndexExaminer(queues, PARTITION, "q", index)("", 100, None, False)
        for index in ("all", "dead", "due")
    }

    assert {index: look.records for index, look in looks.items()} == {"all": 3, "dead": 1, "due": 1}
    found = [finding.subject for look in looks.values() for finding in look.findings]
    assert found == ["all q/lost", "due q/lost"]


async def test_sweep_covers_an_index_in_parts(redis_bench: Bench, client: Client) -> None:
    for index in range(600):
        await redis_bench.save(f"t{index:03}", HOUR)
    for index in range(0, 600, 2):
        await client.delete(KEYS.trigger(PARTITION, f"t{index:03}"))

    orphans: list[str] = []
    first: int | None = 0
    while first is not None:
        swept = await redis_bench.queues.sweep(PARTITION, "", "due", first)
        orphans += swept.orphans
        first = swept.next_rank

    assert sorted(orphans) == [f"t{index:03}" for index in range(0, 600, 2)]
    assert (await redis_bench.queues.counts(PARTITION, "")).scheduled == 300


@pytest.mark.skipif(shutil.which("localedef") is None, reason="needs localedef, of glibc, to make a locale")
async def test_pages_are_ordered_by_bytes_in_any_server_locale(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server takes its locale from its environment, and Lua compares strings by it: a comes before B, not after."""
    made = await asyncio.create_subprocess_exec("localedef", "-i", "en_US", "-f", "UTF-8", tmp_path / "en_US.UTF-8")
    if await made.wait() or not (tmp_path / "en_US.UTF-8").exists():
        pytest.skip("needs the source of en_US, of Debian's package locales")
    monkeypatch.setenv("LOCPATH", str(tmp_path))
    monkeypatch.setenv("LC_ALL", "en_US.UTF-8")
    server = EmbeddedStore(tmp_path / "store", acl_users=[ACL])
    await server.start()
    client = connect(server.url_for(ACL.name))
    try:
        bench = Bench(RedisTriggerStore(client, KEYS, clock), clock, RedisQueueStore(client, KEYS, clock))
        names = ["A", "B", "C", "a", "a-b", "a.c", "ab", "b", "c"]
        for name in names:
            await bench.save(name, 0)
        found: list[str] = []
        page = Page((), 0, None, more=True)
        while page.more:
            page = await bench.store.page_scheduled(PARTITION, None, page.end, 2)
            found += [trigger.id for trigger in page.triggers]
        assert found == names
    finally:
        await client.end()
        await server.stop()


async def test_event_that_many_listen_to_leaves_the_store_to_others_in_between(
    redis_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store carries out what comes in one piece without a pause: 5000 firings would take 0.3 s of its time."""
    together: list[int] = []
    each = Script.each

    async def counted(script: Script[Any], client: Client, calls: Sequence[Any]) -> list[Any]:
        together.append(sum(len(args["items"]) for _, args in calls))
        return await each(script, client, calls)

    monkeypatch.setattr(Script, "each", counted)
    schedule = Schedule(OnEvent("tick", EventFilter("")))
    await redis_bench.store.of_queue("q").save(PARTITION, TriggerDraft("there", "q", schedule))
    together.clear()
    orders = [FiringOrder(PARTITION, "q", f"gone{at}") for at in range(1500)]
    orders[1234:1234] = [FiringOrder(PARTITION, "q", "there")]

    outcomes = await redis_bench.queues.fire(orders, Event("e1", "tick"))

    assert [at for at, outcome in enumerate(outcomes) if outcome is not Outcome.GONE] == [1234]
    assert (sum(together), max(together)) == (1501, 400)
