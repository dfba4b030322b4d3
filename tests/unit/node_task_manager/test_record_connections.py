"""Keeping a record of which workers are connected to a replica."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from tests.unit.node_task_manager.conftest import Line
from tests.waiting import until
from tradewind.node_task_manager.ports.connected import ConnectionChanges, LastOffer
from tradewind.node_task_manager.stores.memory.connected import MemoryConnectedWorkers
from tradewind.node_task_manager.use_cases import record_connections
from tradewind.node_task_manager.use_cases.connected_worker import ConnectedWorker
from tradewind.node_task_manager.use_cases.record_connections import RecordConnections
from tradewind.node_task_manager.use_cases.worker_pool import WorkerPool
from tradewind.server.clock import ManualClock
from tradewind.server.ending import end_tasks


class Record(MemoryConnectedWorkers):
    """The record of connections, which may be away; it also counts how much one call holds."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.away = False
        self.largest = self.refused = 0

    async def record(self, replica: str, keep_ms: int, changes: ConnectionChanges) -> bool:
        if self.away:
            self.refused += 1
            raise ConnectionError("the store is away")
        self.largest = max(self.largest, len(changes.workers), len(changes.node_types))
        return await super().record(replica, keep_ms, changes)


class Replica:
    """A replica that reports workers as they come and go."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.record = Record(self.clock)
        self.pool = WorkerPool()
        self.recorder = RecordConnections(self.record, self.pool, "r1", self.clock, refresh_s=0.01)

    def come(self, worker_id: str, *node_types: str) -> ConnectedWorker:
        worker = ConnectedWorker(worker_id, "i1", node_types, 1, Line())
        self.pool.add(worker)
        return worker

    async def offers(self, *node_types: str) -> None:
        async def are_offered() -> bool:
            return not await self.record.unoffered(node_types)

        await until(are_offered, f"{node_types} are offered")

    async def withdraws(self, node_type: str) -> LastOffer:
        async def is_withdrawn() -> bool:
            return any(last.worker_id for last in (await self.record.unoffered([node_type])).values())

        await until(is_withdrawn, f"{node_type} is offered no more")
        return (await self.record.unoffered([node_type]))[node_type]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.get_running_loop().create_task(self.recorder.run())
        try:
            yield
        finally:
            await end_tasks([task])


async def test_connections_are_recorded_as_workers_come_and_go() -> None:
    replica = Replica()
    first = replica.come("w1", "a", "b")
    async with replica.running():
        await replica.offers("a", "b")
        second = replica.come("w2", "b")
        since_ms = replica.clock.now_ms()

        async def is_recorded() -> bool:
            return "w2" in await replica.record.since(["w2"])

        await until(is_recorded, "the second one is recorded")
        replica.clock.advance(1000)
        replica.pool.remove(first)
        assert await replica.withdraws("a") == LastOffer("w1", replica.clock.now_ms())
        assert await replica.record.since(["w1", "w2"]) == {"w2": since_ms}
        replica.pool.remove(second)
        assert (await replica.withdraws("b")).worker_id == "w2"


async def test_replacing_stream_updates_offered_types() -> None:
    replica = Replica()
    async with replica.running():
        replica.come("w1", "a", "b")
        await replica.offers("a", "b")
        replica.come("w1", "b", "c")
        await replica.offers("b", "c")
        assert (await replica.withdraws("a")).worker_id == "w1"


@pytest.mark.parametrize("lapses", [False, True])
async def test_connections_are_recorded_again_after_an_outage(lapses: bool) -> None:
    replica = Replica()
    worker = replica.come("w1", "a")
    async with replica.running():
        await replica.offers("a")
        replica.record.away = True
        replica.pool.remove(worker)
        replica.come("w2", "b")
        await until(lambda: replica.record.refused, "nothing was recorded")
        if lapses:
            replica.clock.advance(60_000)
        replica.record.away = False
        await replica.offers("b")
        assert (await replica.withdraws("a")).worker_id == "w1"


async def test_outage_is_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_connections, "_RETRY_S", 0.01)
    replica = Replica()
    replica.record.away = True
    with capture_logs() as logs:
        async with replica.running():
            await until(lambda: replica.record.refused > 3, "it has tried again and again")
    assert [(log["event"], log["what"]) for log in logs] == [("connections_not_recorded", "ConnectionError")]


async def test_many_connections_are_recorded_in_batches() -> None:
    replica = Replica()
    for number in range(450):
        replica.come(f"w{number}", f"t{number}")
    async with replica.running():
        await replica.offers(*(f"t{number}" for number in range(450)))
    assert replica.record.largest == 200


async def test_claiming_worker_counts_as_connected_for_a_minute() -> None:
    replica = Replica()
    async with replica.running():
        replica.recorder.claimed("u1", frozenset({"a"}))
        await replica.offers("a")
        replica.clock.advance(59_000)
        replica.recorder.claimed("u1", frozenset({"a"}))
        claimed_ms = replica.clock.now_ms()
        await replica.offers("a")
        replica.clock.advance(61_000)
        assert await replica.withdraws("a") == LastOffer("u1", claimed_ms)


async def test_leaving_replica_removes_its_connections() -> None:
    replica = Replica()
    replica.come("w1", "a")
    async with replica.running():
        await replica.offers("a")
    await replica.recorder.leave()
    assert (await replica.withdraws("a")).worker_id == "w1"
    assert await replica.record.since(["w1"]) == {}
