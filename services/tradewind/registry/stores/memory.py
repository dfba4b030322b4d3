"""The registry in memory: the executable specification of its stores, obvious rather than fast."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tradewind.registry.domain.limits import Lifetimes, Limits
from tradewind.registry.domain.node_type import NodeType, NodeTypeRecord
from tradewind.registry.domain.worker import HeartbeatAnswer, Worker, WorkerRecord
from tradewind.registry.ports import Page, Refusal


@dataclass(frozen=True, slots=True)
class _Entry:
    """A worker as stored here; `replaced` names earlier incarnations, the latest first."""

    worker: Worker
    registered_at: int
    last_heartbeat: int
    draining: bool = False
    replaced: tuple[str, ...] = ()


@dataclass(slots=True)
class _Declaration:
    node_type: NodeType
    declared_at: int
    lapses_at: int


@dataclass(slots=True)
class MemoryRegistry:
    """Workers and the catalogue of one registry; `clock` returns epoch ms.

    Records and declarations are immutable, so they are handed out without copying.
    """

    clock: Callable[[], int]
    lifetimes: Lifetimes = field(default_factory=Lifetimes)
    limits: Limits = field(default_factory=Limits)
    entries_by_id: dict[str, _Entry] = field(default_factory=dict)
    declared: dict[str, _Declaration] = field(default_factory=dict)

    @property
    def workers(self) -> "MemoryWorkers":
        """The port for workers."""
        return MemoryWorkers(self)

    @property
    def node_types(self) -> "MemoryNodeTypes":
        """The port for the catalogue."""
        return MemoryNodeTypes(self)

    def entry(self, worker_id: str) -> _Entry | None:
        """Return the entry of a worker, None when it is not on record."""
        entry = self.entries_by_id.get(worker_id)
        if entry and self.lifetimes.on_record(entry.last_heartbeat, self.clock()):
            return entry
        return None

    def entries(self) -> list[_Entry]:
        """Return the entries of all workers on record, by id."""
        return [entry for worker_id in sorted(self.entries_by_id) if (entry := self.entry(worker_id))]

    def alive(self, entry: _Entry) -> bool:
        return self.lifetimes.alive(entry.last_heartbeat, self.clock())

    def record(self, entry: _Entry) -> WorkerRecord:
        return WorkerRecord(
            entry.worker, entry.registered_at, entry.last_heartbeat, entry.draining, alive=self.alive(entry)
        )

    def declaration(self, name: str) -> _Declaration | None:
        """Return a declaration that has not lapsed."""
        declaration = self.declared.get(name)
        return declaration if declaration and declaration.lapses_at > self.clock() else None

    def offering(self, name: str) -> list[_Entry]:
        """Return the live workers that offer a node type, by id."""
        return [entry for entry in self.entries() if self.alive(entry) and name in entry.worker.node_types]

    async def sweep(self) -> int:
        workers = [worker_id for worker_id in self.entries_by_id if self.entry(worker_id) is None]
        names = [name for name in self.declared if self.declaration(name) is None]
        for worker_id in workers:
            del self.entries_by_id[worker_id]
        for name in names:
            del self.declared[name]
        return len(workers) + len(names)


@dataclass(frozen=True, slots=True)
class MemoryWorkers:
    """Implements WorkerStore."""

    registry: MemoryRegistry

    async def register(self, worker: Worker, node_types: Sequence[NodeType]) -> WorkerRecord | Refusal:
        registry = self.registry
        entry = registry.entry(worker.worker_id)
        if entry and worker.incarnation in entry.replaced:
            return Refusal.REPLACED
        if entry is None and len(registry.entries()) >= registry.limits.workers:
            return Refusal.TOO_MANY_WORKERS
        known = {name for name in registry.declared if registry.declaration(name)}
        if len(known | {node_type.name for node_type in node_types}) > registry.limits.node_types:
            return Refusal.TOO_MANY_NODE_TYPES
        now = registry.clock()
        for node_type in node_types:
            registry.declared[node_type.name] = _Declaration(node_type, now, registry.lifetimes.lapse(now))
        return registry.record(self._enter(worker, entry))

    async def heartbeat(self, worker: Worker, *, draining: bool = False) -> HeartbeatAnswer | Refusal:
        registry = self.registry
        entry = registry.entry(worker.worker_id)
        if entry and entry.worker.incarnation != worker.incarnation:
            if worker.incarnation in entry.replaced:
                return HeartbeatAnswer(drain=True)
            if registry.alive(entry):
                return HeartbeatAnswer(register_again=True)
        if entry is None and len(registry.entries()) >= registry.limits.workers:
            return Refusal.TOO_MANY_WORKERS
        entered = self._enter(worker, entry)
        if draining:
            registry.entries_by_id[worker.worker_id] = entered = replace(entered, draining=True)
        undeclared = any(registry.declaration(name) is None for name in worker.node_types)
        return HeartbeatAnswer(register_again=undeclared, drain=entered.draining)

    def _enter(self, worker: Worker, before: _Entry | None) -> _Entry:
        registry = self.registry
        now = registry.clock()
        if before is None:
            entry = _Entry(worker, now, now)
        elif before.worker.incarnation == worker.incarnation:
            entry = replace(before, worker=worker, last_heartbeat=now)
        else:
            replaced = (before.worker.incarnation, *before.replaced)[: registry.limits.replaced_incarnations]
            entry = _Entry(worker, now, now, replaced=replaced)
        registry.entries_by_id[worker.worker_id] = entry
        for name in worker.node_types:
            if declaration := registry.declaration(name):
                declaration.lapses_at = registry.lifetimes.lapse(now)
        return entry

    async def drain(self, worker_id: str) -> WorkerRecord | None:
        entry = self.registry.entry(worker_id)
        if entry is None:
            return None
        self.registry.entries_by_id[worker_id] = entry = replace(entry, draining=True)
        return self.registry.record(entry)

    async def deregister(self, worker_id: str, incarnation: str = "") -> bool:
        entry = self.registry.entry(worker_id)
        if entry is None or incarnation not in ("", entry.worker.incarnation):
            return False
        del self.registry.entries_by_id[worker_id]
        return True

    async def find(self, worker_id: str) -> WorkerRecord | None:
        entry = self.registry.entry(worker_id)
        return self.registry.record(entry) if entry else None

    async def list(
        self, after: str, limit: int, *, include_offline: bool = False, only_called: bool = False
    ) -> Page[WorkerRecord]:
        records = [self.registry.record(entry) for entry in self.registry.entries() if entry.worker.worker_id > after]
        wanted = [record for record in records if record.alive or include_offline]
        if only_called:
            wanted = [record for record in wanted if record.worker.api_url]
        return Page(tuple(wanted[:limit]), wanted[limit - 1].worker.worker_id if len(wanted) > limit else "")

    async def available(self, node_type: str, limit: int) -> Sequence[WorkerRecord]:
        entries = [entry for entry in self.registry.offering(node_type) if not entry.draining]
        entries.sort(key=lambda entry: entry.worker.load)
        return [self.registry.record(entry) for entry in entries[:limit]]


@dataclass(frozen=True, slots=True)
class MemoryNodeTypes:
    """Implements NodeTypeStore."""

    registry: MemoryRegistry

    async def list(self, after: str, limit: int) -> Page[NodeTypeRecord]:
        names = [name for name in sorted(self.registry.declared) if name > after]
        records = self._records(names)
        return Page(tuple(records[:limit]), records[limit - 1].node_type.name if len(records) > limit else "")

    async def find(self, names: Sequence[str], offering: int | None = None) -> Sequence[NodeTypeRecord] | None:
        records = self._records(names, offering)
        size = sum(record.size for record in records)
        return None if size > self.registry.limits.answer_bytes else records

    def _records(self, names: Sequence[str], offering: int | None = None) -> Sequence[NodeTypeRecord]:
        most = self.registry.limits.offering if offering is None else offering
        return [
            NodeTypeRecord(declaration.node_type, declaration.declared_at, self._offering(name, most))
            for name in names
            if (declaration := self.registry.declaration(name))
        ]

    def _offering(self, name: str, most: int) -> tuple[str, ...]:
        return tuple(entry.worker.worker_id for entry in self.registry.offering(name)[:most])
