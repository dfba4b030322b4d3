"""The registry's stores in memory and in Redis, and workers for them."""

from dataclasses import dataclass
from typing import Any

from tests.servers import RedisServer
from tradewind.registry.domain.limits import Lifetimes, Limits
from tradewind.registry.domain.node_type import InputHandle, NodeType, NodeTypeRecord, OutputHandle
from tradewind.registry.domain.worker import HeartbeatAnswer, Worker, WorkerRecord
from tradewind.registry.ports import NodeTypeStore, Sweeper, WorkerStore
from tradewind.registry.stores.keys import Keys
from tradewind.registry.stores.memory import MemoryRegistry
from tradewind.registry.stores.redis import RedisRegistry
from tradewind.server.clock import ManualClock

PREFIX = "trading_flow"
LIFETIMES = Lifetimes()
SECOND, HOUR = 1000, 3600 * 1000
LASTING_KEYS = Keys(PREFIX).indexes


@dataclass
class Bench:
    """A registry under a clock that tests move."""

    workers: WorkerStore
    node_types: NodeTypeStore
    sweeper: Sweeper
    clock: ManualClock

    async def register(self, worker: Worker, *node_types: NodeType) -> WorkerRecord:
        """Register a worker with declarations of all the types it offers, and expect success."""
        declared = {node_type.name: node_type for node_type in node_types}
        all_types = [declared.get(name) or a_type(name) for name in worker.node_types]
        record = await self.workers.register(worker, all_types)
        assert isinstance(record, WorkerRecord), record
        return record

    async def beat(self, worker: Worker, *, draining: bool = False) -> HeartbeatAnswer:
        """Send a heartbeat and expect success."""
        answer = await self.workers.heartbeat(worker, draining=draining)
        assert isinstance(answer, HeartbeatAnswer), answer
        return answer

    async def ids(self, *, include_offline: bool = False) -> list[str]:
        """Return the ids of the workers listed."""
        page = await self.workers.list("", 1000, include_offline=include_offline)
        return [record.worker.worker_id for record in page.records]

    async def found(self, worker_id: str) -> WorkerRecord:
        """Return a worker that must be on record."""
        record = await self.workers.find(worker_id)
        assert record is not None, worker_id
        return record

    async def declared(self, *names: str) -> list[NodeTypeRecord]:
        """Return the records of these node types, which together must not be too large."""
        records = await self.node_types.find(names)
        assert records is not None
        return list(records)

    async def types(self) -> list[str]:
        """Return the names of the node types listed."""
        return [record.node_type.name for record in (await self.node_types.list("", 1000)).records]

    async def available(self, node_type: str, limit: int = 100) -> list[str]:
        """Return the ids of the workers available for a node type."""
        return [record.worker.worker_id for record in await self.workers.available(node_type, limit)]


def memory_bench(clock: ManualClock, limits: Limits | None = None) -> Bench:
    """A registry in memory."""
    registry = MemoryRegistry(clock, LIFETIMES, limits or Limits())
    return Bench(registry.workers, registry.node_types, registry, clock)


def redis_bench(server: RedisServer, clock: ManualClock, limits: Limits | None = None) -> Bench:
    """A registry in Redis, logged in as the service."""
    registry = RedisRegistry(server.connect("registry"), Keys(PREFIX), clock, LIFETIMES, limits or Limits())
    return Bench(registry.workers, registry.node_types, registry, clock)


def a_worker(worker_id: str, *node_types: str, **fields: Any) -> Worker:
    """Return a worker of incarnation `<id>-1` and capacity 10, unless the fields say otherwise."""
    values: dict[str, Any] = {"incarnation": f"{worker_id}-1", "capacity": 10, "node_types": node_types} | fields
    return Worker(worker_id=worker_id, **values)


def a_type(name: str, description: str = "") -> NodeType:
    """Return a node type with one handle on either side."""
    return NodeType(
        name,
        description,
        (InputHandle("prices", '{"type": "array"}', required=True), InputHandle("more", gather=True)),
        (OutputHandle("average", '{"type": "number"}'),),
        '{"type": "object", "properties": {"window": {"type": "integer"}}}',
    )
