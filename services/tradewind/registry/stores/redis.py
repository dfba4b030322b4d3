"""The registry in Redis: one script for each change and each read, since all of them need the server's time."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import structlog
from redis.exceptions import TimeoutError as StoreTimeoutError

from tradewind.registry.domain.limits import Lifetimes, Limits
from tradewind.registry.domain.node_type import NodeType, NodeTypeRecord
from tradewind.registry.domain.worker import HeartbeatAnswer, Worker, WorkerRecord
from tradewind.registry.ports import Page, Refusal
from tradewind.registry.stores.keys import Keys
from tradewind.registry.stores.rows import Answer, NodeTypeRow, declaration, worker_record, worker_row
from tradewind.server.incidents import IncidentLog
from tradewind.server.redis.client import Client
from tradewind.server.redis.script import Reply, Script

_REGISTER = Script(__name__, "register_worker", Answer[tuple[int, list[str], str]])
_HEARTBEAT = Script(__name__, "heartbeat", Answer[tuple[bool, bool, str]])
_DRAIN = Script(__name__, "drain_worker", Answer[tuple[int, list[str]]])
_DEREGISTER = Script(__name__, "deregister_worker", Answer[bool])
_FIND = Script(__name__, "find_worker", Answer[tuple[int, list[str]]])
_LIST = Script(__name__, "list_workers", Answer[tuple[int, list[list[str]], str]])
_AVAILABLE = Script(__name__, "available_workers", Answer[tuple[int, list[list[str]]]])
_LIST_NODE_TYPES = Script(__name__, "list_node_types", Answer[tuple[list[NodeTypeRow], str]])
_FIND_NODE_TYPES = Script(__name__, "find_node_types", Answer[tuple[list[NodeTypeRow], int]])
_SWEEP = Script(__name__, "sweep", Answer[int])

_log = structlog.get_logger(__name__)
_SCRIPTS_AT_ONCE = 32
"""How many scripts may be at the store: enough to keep it busy. Of thousands that come at once, the others wait here,
where one that is given up costs nothing; at the store, all would wait for longer than it may take, and fail together.
"""
_TURN_S = 5.0


class RedisRegistry:
    """The stores of the registry; `clock` returns epoch ms, or 0 for the server's time."""

    def __init__(
        self, client: Client, keys: Keys, clock: Callable[[], int], lifetimes: Lifetimes, limits: Limits
    ) -> None:
        self._client = client
        self._clock = clock
        self.keys = keys
        self.lifetimes = lifetimes
        self.limits = limits
        self._removed = IncidentLog(_log, "record_unreadable", "record_readable_again")
        self._turns = asyncio.Semaphore(_SCRIPTS_AT_ONCE)
        self.workers = RedisWorkers(self)
        self.node_types = RedisNodeTypes(self)

    async def run(self, script: Script[Answer[Reply]], keys: Sequence[str] = (), **args: object) -> Reply:
        """Run a script with its own args and those that all scripts take. Keys that it has removed are logged."""
        shared = {
            "now_ms": self._clock(),
            "time_to_live": self.lifetimes.time_to_live,
            "retention": self.lifetimes.retention,
            "workers": self.keys.workers,
            "node_types": self.keys.node_types,
        }
        async with self._turn():
            answer = await script(self._client, [*self.keys.indexes, *keys], shared | args)
        for key in answer.removed:
            hint = "it was removed: what workers report next fills it again"
            self._removed.note(key, error="it was of another type", hint=hint)
        return answer.reply

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait until few enough scripts are at the store. Raises TimeoutError, an outage, after 5 s."""
        try:
            async with asyncio.timeout(_TURN_S):
                await self._turns.acquire()
        except TimeoutError:
            raise StoreTimeoutError(f"the store has not answered the calls before this one for {_TURN_S:g} s") from None
        try:
            yield
        finally:
            self._turns.release()

    async def sweep(self) -> int:
        return await self.run(_SWEEP, max_checked=self.limits.records_per_script // 2)


class RedisWorkers:
    """Implements WorkerStore."""

    def __init__(self, registry: RedisRegistry) -> None:
        self._registry = registry
        self._keys, self._lifetimes, self._limits = registry.keys, registry.lifetimes, registry.limits

    async def register(self, worker: Worker, node_types: Sequence[NodeType]) -> WorkerRecord | Refusal:
        now, row, refusal = await self._registry.run(
            _REGISTER,
            [self._keys.worker(worker.worker_id), *(self._keys.node_type(each.name) for each in node_types)],
            declarations=[declaration(each) for each in node_types],
            max_node_types=self._limits.node_types,
            **self._entry_args(worker),
        )
        return Refusal(refusal) if refusal else worker_record(row, self._lifetimes, now)

    async def heartbeat(self, worker: Worker, *, draining: bool = False) -> HeartbeatAnswer | Refusal:
        keys = [self._keys.worker(worker.worker_id)]
        register_again, drain, refusal = await self._registry.run(
            _HEARTBEAT, keys, draining=draining, **self._entry_args(worker)
        )
        return Refusal(refusal) if refusal else HeartbeatAnswer(register_again, drain)

    def _entry_args(self, worker: Worker) -> Mapping[str, Any]:
        return {
            "worker": worker_row(worker),
            "offered": worker.node_types,
            "load": worker.load,
            "max_workers": self._limits.workers,
            "replaced_kept": self._limits.replaced_incarnations,
        }

    async def drain(self, worker_id: str) -> WorkerRecord | None:
        now, row = await self._registry.run(_DRAIN, [self._keys.worker(worker_id)], worker_id=worker_id)
        return worker_record(row, self._lifetimes, now) if row else None

    async def deregister(self, worker_id: str, incarnation: str = "") -> bool:
        keys = [self._keys.worker(worker_id)]
        return await self._registry.run(_DEREGISTER, keys, worker_id=worker_id, incarnation=incarnation)

    async def find(self, worker_id: str) -> WorkerRecord | None:
        now, row = await self._registry.run(_FIND, [self._keys.worker(worker_id)], worker_id=worker_id)
        return worker_record(row, self._lifetimes, now) if row else None

    async def list(
        self, after: str, limit: int, *, include_offline: bool = False, only_called: bool = False
    ) -> Page[WorkerRecord]:
        records: list[WorkerRecord] = []
        bytes_left = self._limits.answer_bytes
        # Reading one record more than wanted shows whether there is a next page.
        while len(records) <= limit and bytes_left > 0:
            now, rows, after = await self._registry.run(
                _LIST,
                after=after,
                limit=limit + 1 - len(records),
                include_offline=include_offline,
                only_called=only_called,
                max_checked=self._limits.records_per_script,
                max_bytes=bytes_left,
            )
            records += [worker_record(row, self._lifetimes, now) for row in rows]
            bytes_left -= sum(len(text.encode()) for row in rows for text in row)
            if not after:
                break
        if len(records) > limit:
            return Page(tuple(records[:limit]), records[limit - 1].worker.worker_id)
        return Page(tuple(records), after)

    async def available(self, node_type: str, limit: int) -> Sequence[WorkerRecord]:
        now, rows = await self._registry.run(
            _AVAILABLE, [self._keys.offering(node_type)], limit=limit, max_bytes=self._limits.answer_bytes
        )
        return [worker_record(row, self._lifetimes, now) for row in rows]


class RedisNodeTypes:
    """Implements NodeTypeStore."""

    def __init__(self, registry: RedisRegistry) -> None:
        self._registry = registry
        self._limits = registry.limits

    async def list(self, after: str, limit: int) -> Page[NodeTypeRecord]:
        rows: list[NodeTypeRow] = []
        bytes_left = self._limits.answer_bytes
        while len(rows) <= limit and bytes_left > 0:
            found, after = await self._registry.run(
                _LIST_NODE_TYPES,
                after=after,
                limit=limit + 1 - len(rows),
                max_checked=self._limits.records_per_script,
                **self._catalogue_args(bytes_left),
            )
            rows += found
            bytes_left -= sum(row.size for row in found)
            if not after:
                break
        if len(rows) > limit:
            rows, after = rows[:limit], rows[limit - 1].name
        return Page(tuple(row.record() for row in rows), after)

    async def find(self, names: Sequence[str], offering: int | None = None) -> Sequence[NodeTypeRecord] | None:
        records: list[NodeTypeRecord] = []
        seen = 0
        while seen < len(names):
            some = names[seen : seen + self._limits.records_per_script]
            found, checked = await self._registry.run(
                _FIND_NODE_TYPES, names=some, **self._catalogue_args(self._limits.answer_bytes, offering)
            )
            records += (row.record() for row in found)
            seen += checked
            if sum(record.size for record in records) > self._limits.answer_bytes:
                return None
        return records

    def _catalogue_args(self, max_bytes: int, offering: int | None = None) -> Mapping[str, Any]:
        return {"max_offering": self._limits.offering if offering is None else offering, "max_bytes": max_bytes}
