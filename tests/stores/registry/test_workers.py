"""Every sentence of the worker store's contract, for every store."""

from dataclasses import replace

import pytest

from tests.stores.registry.bench import HOUR, LIFETIMES, SECOND, Bench, a_worker
from tradewind.registry.domain.worker import HeartbeatAnswer, WorkerStatus
from tradewind.registry.ports import Page, Refusal

OFFLINE_AFTER = LIFETIMES.time_to_live
FORGOTTEN_AFTER = LIFETIMES.time_to_live + LIFETIMES.retention


async def test_registered_worker_is_stored_as_it_described_itself(bench: Bench) -> None:
    worker = a_worker(
        "w.1-a",
        "average",
        "report",
        running=3,
        api_url="http://worker:9000",
        host="büro",
        pid=4711,
        sdk="tradewind-python/0.1.0",
        labels=(("region", "eu"), ("zone", 'a "b"')),
    )
    record = await bench.register(worker)
    assert record.worker == worker
    assert record.registered_at == record.last_heartbeat == bench.clock.now_ms()
    assert record.status is WorkerStatus.ACTIVE
    assert await bench.workers.find("w.1-a") == record
    assert await bench.workers.find("w.1") is None


async def test_heartbeat_replaces_what_the_worker_reported_before(bench: Bench) -> None:
    await bench.register(a_worker("w", "average", "report"))
    begun = bench.clock.now_ms()
    bench.clock.advance(20 * SECOND)
    later = a_worker("w", "report", running=7, capacity=12, labels=(("zone", "b"),))
    assert await bench.beat(later) == HeartbeatAnswer()
    record = await bench.found("w")
    assert record.worker == later
    assert (record.registered_at, record.last_heartbeat) == (begun, begun + 20 * SECOND)
    assert await bench.available("average") == []
    assert await bench.available("report") == ["w"]


async def test_worker_is_offline_sixty_seconds_after_its_last_heartbeat(bench: Bench) -> None:
    await bench.register(a_worker("w", "average"))
    bench.clock.advance(OFFLINE_AFTER - 1)
    assert (await bench.found("w")).status is WorkerStatus.ACTIVE
    assert await bench.ids() == await bench.available("average") == ["w"]
    bench.clock.advance(1)
    assert (await bench.found("w")).status is WorkerStatus.OFFLINE
    assert await bench.ids() == await bench.available("average") == []
    assert await bench.ids(include_offline=True) == ["w"]


async def test_record_of_an_offline_worker_ends_a_day_later(bench: Bench) -> None:
    await bench.register(a_worker("w", "average"))
    bench.clock.advance(FORGOTTEN_AFTER - 1)
    assert await bench.ids(include_offline=True) == ["w"]
    bench.clock.advance(1)
    assert await bench.ids(include_offline=True) == []
    assert await bench.workers.find("w") is None
    assert await bench.workers.drain("w") is None
    assert not await bench.workers.deregister("w")


@pytest.mark.parametrize("silent_for", [OFFLINE_AFTER, HOUR, FORGOTTEN_AFTER, 2 * FORGOTTEN_AFTER])
async def test_heartbeat_after_a_silence_restores_the_whole_worker(bench: Bench, silent_for: int) -> None:
    worker = a_worker("w", "average", running=2, api_url="worker:9000", labels=(("zone", "a"),))
    await bench.register(worker)
    begun = bench.clock.now_ms()
    bench.clock.advance(silent_for)
    assert await bench.beat(worker) == HeartbeatAnswer(register_again=silent_for >= FORGOTTEN_AFTER)
    record = await bench.found("w")
    assert record.worker == worker
    assert record.registered_at == (begun if silent_for < FORGOTTEN_AFTER else bench.clock.now_ms())
    assert await bench.ids() == await bench.available("average") == ["w"]


async def test_heartbeat_of_an_unregistered_worker_stores_it_completely(bench: Bench) -> None:
    worker = a_worker("w", "average", running=2)
    assert await bench.beat(worker) == HeartbeatAnswer(register_again=True)
    assert (await bench.found("w")).worker == worker
    assert await bench.available("average") == ["w"]
    assert await bench.beat(a_worker("v")) == HeartbeatAnswer()


async def test_heartbeat_asks_to_register_while_a_node_type_is_undeclared(bench: Bench) -> None:
    await bench.register(a_worker("w", "average"))
    assert await bench.beat(a_worker("w", "average", "report")) == HeartbeatAnswer(register_again=True)
    assert await bench.beat(a_worker("w", "average", "report")) == HeartbeatAnswer(register_again=True)
    await bench.register(a_worker("w", "average", "report"))
    assert await bench.beat(a_worker("w", "average", "report")) == HeartbeatAnswer()


async def test_new_incarnation_starts_with_a_fresh_record(bench: Bench) -> None:
    await bench.register(a_worker("w", "average", running=5))
    await bench.workers.drain("w")
    bench.clock.advance(SECOND)
    restarted = a_worker("w", "report", incarnation="w-2")
    record = await bench.register(restarted)
    assert record.worker == restarted
    assert record.registered_at == bench.clock.now_ms()
    assert record.status is WorkerStatus.ACTIVE
    assert await bench.available("average") == []
    assert await bench.available("report") == ["w"]


async def test_registering_the_same_incarnation_again_keeps_registered_at(bench: Bench) -> None:
    await bench.register(a_worker("w", "average"))
    begun = bench.clock.now_ms()
    bench.clock.advance(SECOND)
    record = await bench.register(a_worker("w", "average", running=1))
    assert (record.registered_at, record.last_heartbeat) == (begun, begun + SECOND)


async def test_replaced_incarnation_changes_nothing_and_is_asked_to_drain(bench: Bench) -> None:
    older, newer = a_worker("w", "average", running=9), a_worker("w", "report", incarnation="w-2")
    await bench.register(older)
    record = await bench.register(newer)
    bench.clock.advance(SECOND)
    assert await bench.beat(older) == HeartbeatAnswer(drain=True)
    assert await bench.workers.register(older, []) is Refusal.REPLACED
    assert await bench.workers.find("w") == record
    assert await bench.available("average") == []


async def test_replaced_incarnation_stays_replaced_while_the_newer_one_is_offline(bench: Bench) -> None:
    older = a_worker("w")
    await bench.register(older)
    await bench.register(a_worker("w", incarnation="w-2"))
    bench.clock.advance(OFFLINE_AFTER)
    assert await bench.beat(older) == HeartbeatAnswer(drain=True)
    bench.clock.advance(LIFETIMES.retention)
    assert await bench.beat(older) == HeartbeatAnswer()


async def test_sixteen_latest_incarnations_are_remembered_as_replaced(bench: Bench) -> None:
    for number in range(1, 19):
        await bench.register(a_worker("w", incarnation=f"w-{number}"))
    for number in range(2, 18):
        assert await bench.workers.register(a_worker("w", incarnation=f"w-{number}"), []) is Refusal.REPLACED
    assert (await bench.found("w")).worker.incarnation == "w-18"
    await bench.register(a_worker("w", incarnation="w-1"))


async def test_unknown_incarnation_is_asked_to_register_while_another_is_alive(bench: Bench) -> None:
    record = await bench.register(a_worker("w"))
    assert await bench.beat(a_worker("w", incarnation="w-2")) == HeartbeatAnswer(register_again=True)
    assert await bench.workers.find("w") == record


async def test_unknown_incarnation_replaces_an_offline_one(bench: Bench) -> None:
    older, newer = a_worker("w", "average"), a_worker("w", "average", incarnation="w-2")
    await bench.register(older)
    bench.clock.advance(OFFLINE_AFTER)
    assert await bench.beat(newer) == HeartbeatAnswer()
    record = await bench.found("w")
    assert (record.worker, record.registered_at) == (newer, bench.clock.now_ms())
    assert await bench.beat(older) == HeartbeatAnswer(drain=True)


async def test_draining_is_kept_across_heartbeats_and_registrations(bench: Bench) -> None:
    worker = a_worker("w", "average")
    await bench.register(worker)
    drained = await bench.workers.drain("w")
    assert drained is not None
    assert drained.status is WorkerStatus.DRAINING
    assert await bench.workers.find("w") == drained
    assert await bench.beat(replace(worker, running=1)) == HeartbeatAnswer(drain=True)
    assert (await bench.register(worker)).status is WorkerStatus.DRAINING
    assert await bench.available("average") == []
    assert await bench.ids() == ["w"]
    bench.clock.advance(OFFLINE_AFTER)
    assert (await bench.found("w")).status is WorkerStatus.OFFLINE
    assert await bench.beat(worker) == HeartbeatAnswer(drain=True)
    assert await bench.workers.drain("v") is None


async def test_worker_may_say_itself_that_it_drains(bench: Bench) -> None:
    worker = a_worker("w", "average")
    await bench.register(worker)
    assert await bench.beat(worker, draining=True) == HeartbeatAnswer(drain=True)
    assert (await bench.found("w")).status is WorkerStatus.DRAINING
    assert await bench.available("average") == []
    newer = replace(worker, incarnation="w-2")
    assert (await bench.register(newer)).status is WorkerStatus.ACTIVE
    assert await bench.beat(worker, draining=True) == HeartbeatAnswer(drain=True)
    assert await bench.available("average") == ["w"]


async def test_deregistering_removes_a_worker_at_once(bench: Bench) -> None:
    await bench.register(a_worker("w", "average"))
    assert await bench.workers.deregister("w", "w-1")
    assert await bench.workers.find("w") is None
    assert await bench.ids(include_offline=True) == await bench.available("average") == []
    assert not await bench.workers.deregister("w", "w-1")
    assert not await bench.workers.deregister("w")


async def test_deregistering_an_older_incarnation_keeps_the_newer_one(bench: Bench) -> None:
    await bench.register(a_worker("w"))
    await bench.register(a_worker("w", incarnation="w-2"))
    assert not await bench.workers.deregister("w", "w-1")
    assert await bench.ids() == ["w"]
    assert await bench.workers.deregister("w")
    assert await bench.ids() == []


async def test_workers_are_listed_by_id_in_pages(bench: Bench) -> None:
    for number in range(5):
        await bench.register(a_worker(f"w{number}"))
    bench.clock.advance(OFFLINE_AFTER)
    for number in (0, 3, 4):
        await bench.beat(a_worker(f"w{number}"))
    first = await bench.workers.list("", 2)
    assert [record.worker.worker_id for record in first.records] == ["w0", "w3"]
    second = await bench.workers.list(first.next_after, 2)
    assert [record.worker.worker_id for record in second.records] == ["w4"]
    assert second.next_after == ""
    exact = await bench.workers.list("", 3)
    assert (len(exact.records), exact.next_after) == (3, "")
    everyone = await bench.workers.list("w0", 100, include_offline=True)
    assert [record.worker.worker_id for record in everyone.records] == ["w1", "w2", "w3", "w4"]
    assert [record.alive for record in everyone.records] == [False, False, True, True]
    assert await bench.workers.list("w4", 2) == Page()


async def test_only_workers_with_an_api_url_are_listed_on_request(bench: Bench) -> None:
    for worker_id, api_url in (("a", "host:1"), ("b", ""), ("c", "host:3"), ("d", "host:4")):
        await bench.register(a_worker(worker_id, api_url=api_url))
    first = await bench.workers.list("", 2, only_called=True)
    assert [record.worker.worker_id for record in first.records] == ["a", "c"]
    assert first.next_after == "c"
    await bench.register(a_worker("a"))
    await bench.register(a_worker("b", api_url="host:2"))
    await bench.workers.deregister("d")
    called = await bench.workers.list("", 10, only_called=True)
    assert [record.worker.api_url for record in called.records] == ["host:2", "host:3"]


async def test_available_workers_are_ordered_by_load_then_id(bench: Bench) -> None:
    await bench.register(a_worker("half", "average", capacity=2, running=1))
    await bench.register(a_worker("third-b", "average", capacity=6, running=2))
    await bench.register(a_worker("third-a", "average", capacity=3, running=1))
    await bench.register(a_worker("over", "average", capacity=2, running=3))
    await bench.register(a_worker("idle", "average", capacity=1))
    await bench.register(a_worker("other", "report"))
    assert await bench.available("average") == ["idle", "third-a", "third-b", "half", "over"]
    await bench.beat(a_worker("half", "average", capacity=2))
    assert await bench.available("average", 2) == ["half", "idle"]
    assert await bench.available("unknown") == []


async def test_sweep_does_not_change_listings(bench: Bench) -> None:
    await bench.register(a_worker("gone", "average"))
    bench.clock.advance(HOUR)
    await bench.register(a_worker("out", "report"))
    bench.clock.advance(FORGOTTEN_AFTER - HOUR)
    await bench.register(a_worker("here", "report"))
    before = await bench.workers.list("", 10, include_offline=True), await bench.node_types.list("", 10)
    assert await bench.sweeper.sweep() > 0
    assert await bench.sweeper.sweep() == 0
    after = await bench.workers.list("", 10, include_offline=True), await bench.node_types.list("", 10)
    assert after == before
    assert await bench.ids(include_offline=True) == ["here", "out"]
    assert await bench.types() == ["report"]
