"""Looking at node tasks of one shard in Redis, and its events."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from tradewind.node_task_manager.domain.component import Component, ComponentStatus
from tradewind.node_task_manager.domain.item_counts import ItemCounts
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import NodeTask, NodeTaskStatus, PastAttempt, StopMark, TaskError
from tradewind.node_task_manager.domain.waiting import Resumption, Wait
from tradewind.node_task_manager.ports.events import Event
from tradewind.node_task_manager.ports.reading import StoredLine
from tradewind.node_task_manager.stores.keys import Keys
from tradewind.server.redis.client import Redis
from tradewind.server.redis.script import Script

Facts = TypeVar("Facts", bound=msgspec.Struct)

_stop = msgspec.msgpack.Decoder(StopMark).decode
_history = msgspec.msgpack.Decoder(tuple[PastAttempt, ...]).decode
_error = msgspec.msgpack.Decoder(TaskError).decode
_wait = msgspec.msgpack.Decoder(Wait).decode
_resumption = msgspec.msgpack.Decoder(Resumption).decode
_PIECE = 500
ELSEWHERE = "@"
_WHOLE_PIECE = 64
_COUNTS = ("total", "need", "begun", "completed", "failed", "cancelled")
_FIELDS = (
    *("status", "facts", "waiting", "live", "reason", "error", "lost"),
    *("failures", "retry_at", "history", "slots", "blocked"),
    *(
        "progress",
        "message",
        "step",
        "cached",
        "kept",
        "child",
        "postponed",
        "ended_at",
        "stop",
        "wait",
        "resumed",
    ),
    *(f"items_{name}" for name in _COUNTS),
)
_SUBSCRIBE = Script(__name__, "subscribe_events", bool)


class RedisNodeTaskReader:
    """A NodeTaskReader; reads in pipelines of at most 500 records, or 64 with the values in them."""

    def __init__(self, client: Redis, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    async def tasks(self, ids: Sequence[str], *, inputs: bool = False, outputs: bool = False) -> list[NodeTask | None]:
        found: list[NodeTask | None] = []
        whole = inputs or outputs
        size = _WHOLE_PIECE if whole else _PIECE
        for first in range(0, len(ids), size):
            piece = ids[first : first + size]
            pipeline = self._client.pipeline(transaction=False)
            pipeline.execute_command("ZMSCORE", self._keys.inflight(), *piece)
            for task_id in piece:
                if whole:
                    pipeline.hgetall(self._keys.node_task(task_id))
                else:
                    pipeline.hmget(self._keys.node_task(task_id), list(_FIELDS))
                    pipeline.execute_command("HKEYS", self._keys.node_task(task_id))
            deadlines, *values = await pipeline.execute()
            records = values if whole else map(_without_values, values[::2], values[1::2])
            for task_id, record, deadline in zip(piece, records, deadlines, strict=True):
                found.append(_task(task_id, record, deadline, inputs, outputs) if b"status" in record else None)
        return await self._with_kept(found) if outputs else found

    async def _with_kept(self, found: list[NodeTask | None]) -> list[NodeTask | None]:
        """Put in the outputs of node tasks of reruns that refer to results of an earlier run."""
        kept = [task.kept for task in found if task is not None and task.kept]
        emitted = dict(zip(kept, await self.emitted(kept), strict=True)) if kept else {}
        return [replace(task, outputs=emitted[task.kept]) if task is not None and task.kept else task for task in found]

    async def components(self, wanted: Sequence[tuple[RunName, str]]) -> list[Component | None]:
        found: list[Component | None] = []
        for first in range(0, len(wanted), _PIECE):
            piece = wanted[first : first + _PIECE]
            pipeline = self._client.pipeline(transaction=False)
            for run, component_id in piece:
                pipeline.hgetall(self._keys.component(str(run), component_id))
            for (run, component_id), record in zip(piece, await pipeline.execute(), strict=True):
                there = bool(record) and record[b"status"] != b"purged"
                found.append(_component(run, component_id, record) if there else None)
        return found

    async def component_ids(self, run: RunName) -> tuple[str, ...]:
        packed = await self._client.hget(self._keys.run(str(run)), "components")
        return () if packed is None else tuple(msgspec.msgpack.decode(packed))

    async def held_by(self, worker_id: str) -> list[str]:
        return [member.decode() for member in await self._client.zrange(self._keys.worker_tasks(worker_id), 0, -1)]

    async def emitted(self, ids: Sequence[str]) -> list[tuple[tuple[str, str], ...]]:
        found: list[tuple[tuple[str, str], ...]] = []
        for first in range(0, len(ids), _WHOLE_PIECE):
            pipeline = self._client.pipeline(transaction=False)
            for task_id in ids[first : first + _WHOLE_PIECE]:
                pipeline.hgetall(self._keys.node_task(task_id))
            records = await pipeline.execute()
            kept = [_text(record, "kept") for record in records if b"kept" in record]
            results = iter(await self.emitted(kept) if kept else ())
            found += [
                next(results) if b"kept" in record else tuple(sorted(_prefixed(record, b"out:"))) for record in records
            ]
        return found

    async def run_inputs(self, run: RunName, component_id: str) -> str:
        pipeline = self._client.pipeline(transaction=False)
        pipeline.hget(self._keys.component(str(run), component_id), "inputs")
        pipeline.hget(self._keys.run(str(run)), "inputs")
        own, common = await pipeline.execute()
        return (own or common or b"").decode()

    async def outputs(self, wanted: Sequence[tuple[str, str]]) -> list[str | None]:
        values: list[str | None] = []
        for first in range(0, len(wanted), _WHOLE_PIECE):
            pipeline = self._client.pipeline(transaction=False)
            for task_id, handle in wanted[first : first + _WHOLE_PIECE]:
                pipeline.hget(self._keys.node_task(task_id), f"out:{handle}")
            values += [None if value is None else value.decode() for value in await pipeline.execute()]
        elsewhere = [at for at, value in enumerate(values) if value == ELSEWHERE]
        if elsewhere:
            pipeline = self._client.pipeline(transaction=False)
            for at in elsewhere:
                pipeline.hget(self._keys.node_task(wanted[at][0]), "kept")
            sources = [source.decode() for source in await pipeline.execute()]
            handles = [wanted[at][1] for at in elsewhere]
            for at, value in zip(elsewhere, await self.outputs(list(zip(sources, handles, strict=True))), strict=True):
                values[at] = value
        return values

    async def runs_of(
        self, user_id: str, kind: str, after: tuple[int, str] | None, limit: int
    ) -> list[tuple[int, str]]:
        return await self._newest(self._keys.user_runs(user_id, kind), after, limit)

    async def dead_letters(self, user_id: str, after: tuple[int, str] | None, limit: int) -> list[tuple[int, str]]:
        return await self._newest(self._keys.dead_letters(user_id), after, limit)

    async def _newest(self, key: str, after: tuple[int, str] | None, limit: int) -> list[tuple[int, str]]:
        highest = "+inf" if after is None else after[0]
        found: list[tuple[int, str]] = []
        skipped, size = 0, limit + 1
        # Several of one millisecond stand in the order of their names, those before `after` among them.
        while len(found) < limit and size == limit + 1:
            args = (key, highest, "-inf", "BYSCORE", "REV", "LIMIT", skipped, limit + 1, "WITHSCORES")
            pairs = _scored(await self._client.execute_command("ZRANGE", *args))
            found += [pair for pair in pairs if after is None or pair < after]
            skipped, size = skipped + limit + 1, len(pairs)
        return found[:limit]

    async def lines(self, flow_id: str, cycle: int, after: str, limit: int) -> list[StoredLine]:
        return await self._lines(self._keys.logs(flow_id, cycle), after, limit)

    async def run_lines(self, run: RunName, after: str, limit: int) -> list[StoredLine]:
        return await self._lines(self._keys.run_logs(str(run)), after, limit)

    async def _lines(self, key: str, after: str, limit: int) -> list[StoredLine]:
        start = f"({after}" if after else "-"
        entries = await self._client.execute_command("XRANGE", key, start, "+", "COUNT", limit)
        return [
            msgspec.convert({"log_id": entry_id.decode(), **msgspec.msgpack.decode(_field(fields, b"l"))}, StoredLine)
            for entry_id, fields in entries
        ]


class RedisEventLog:
    """An EventLog over one stream per partition."""

    def __init__(self, client: Redis, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    async def subscribe(self, partition: int, epoch: int) -> bool:
        return await _SUBSCRIBE(self._client, [self._keys.events_epoch(partition)], {"epoch": epoch})

    async def read(self, after: dict[int, str], limit: int) -> list[Event]:
        partitions = list(after)
        streams = [self._keys.events(partition) for partition in partitions]
        raw = await self._client.call(streams[0], "XREAD", "COUNT", limit, "STREAMS", *streams, *after.values())
        names = dict(zip(streams, partitions, strict=True))
        pairs = raw.items() if isinstance(raw, dict) else raw or ()
        events: list[Event] = []
        for stream, entries in pairs:
            partition = names[stream.decode()]
            for entry_id, fields in _entries(entries):
                name, packed = _only_field(fields)
                facts = msgspec.msgpack.decode(packed)
                events.append(msgspec.convert([name.decode(), entry_id.decode(), partition, *facts], Event))
        return events

    async def acknowledge(self, through: dict[int, str]) -> None:
        keys = {self._keys.events(partition): event_id for partition, event_id in through.items()}
        trims = [self._client.call(key, "XTRIM", key, "MINID", _after(event_id)) for key, event_id in keys.items()]
        await asyncio.gather(*trims)


def _scored(pairs: Any) -> list[tuple[int, str]]:
    """Scores and members, as RESP3 pairs or RESP2 alternates them."""
    flat = [part for pair in pairs for part in pair] if pairs and isinstance(pairs[0], list | tuple) else pairs
    return [(int(float(score)), member.decode()) for member, score in zip(flat[::2], flat[1::2], strict=True)]


def _after(event_id: str) -> str:
    ms, _, sequence = event_id.partition("-")
    return f"{ms}-{int(sequence or 0) + 1}"


def _entries(entries: Any) -> Sequence[tuple[bytes, Any]]:
    """RESP3 wraps a stream's entries once more."""
    wrapped = bool(entries) and isinstance(entries[0][0], list | tuple)
    return list(entries[0] if wrapped else entries)


def _field(fields: Any, name: bytes) -> bytes:
    if isinstance(fields, dict):
        return bytes(fields[name])
    return bytes(fields[list(fields).index(name) + 1])


def _only_field(fields: Any) -> tuple[bytes, bytes]:
    name, value = next(iter(fields.items())) if isinstance(fields, dict) else fields[:2]
    return bytes(name), bytes(value)


def _number(record: Mapping[bytes, bytes], field: str) -> int:
    return int(record.get(field.encode()) or 0)


def _text(record: Mapping[bytes, bytes], field: str) -> str:
    return record.get(field.encode(), b"").decode()


def _without_values(known: Sequence[bytes | None], names: Sequence[bytes]) -> Mapping[bytes, bytes]:
    """A record in which values, which may be large, stand by their names only."""
    record = dict.fromkeys(names, b"")
    record.update((name.encode(), value) for name, value in zip(_FIELDS, known, strict=True) if value is not None)
    return record


_SHORT_LIST = 0x90
"""How MessagePack says that so many values follow, up to 15, which are a list."""


def _unpacked(values: bytes, kind: type[Facts]) -> Facts:
    """Return values that stand one after the other, as scripts pack them, under their names."""
    return msgspec.msgpack.decode(bytes([_SHORT_LIST + len(kind.__struct_fields__)]) + values, type=kind)


class _TaskFacts(msgspec.Struct, array_like=True, frozen=True):
    """What all node tasks come to have; as `pack_task` of records.lua writes it."""

    component_id: str
    index: int
    registered_at: str
    ready_at: str | None
    attempt: int | None
    nonce: str | None
    worker_id: str | None
    started_at: str | None
    close_at: int | None
    edge: int | None


def _task(task_id: str, record: Mapping[bytes, bytes], deadline: float | None, inputs: bool, outputs: bool) -> NodeTask:
    stop, error = record.get(b"stop"), record.get(b"error")
    facts = _unpacked(record[b"facts"], _TaskFacts)
    return NodeTask(
        task_id=task_id,
        status=NodeTaskStatus(_text(record, "status")),
        component_id=facts.component_id,
        index=facts.index,
        waiting=_number(record, "waiting"),
        live=_number(record, "live"),
        reason=_text(record, "reason"),
        error=None if error is None else _error(error),
        attempt=facts.attempt or 0,
        nonce=facts.nonce or "",
        worker_id=facts.worker_id or "",
        lost=_number(record, "lost"),
        failures=_number(record, "failures"),
        retry_at=_number(record, "retry_at"),
        history=_history(record[b"history"]) if b"history" in record else (),
        progress=_number(record, "progress"),
        message=_text(record, "message"),
        step=_text(record, "step"),
        registered_at=int(facts.registered_at),
        ready_at=int(facts.ready_at or 0),
        started_at=int(facts.started_at or 0),
        ended_at=_number(record, "ended_at"),
        lease_deadline=int(deadline or 0),
        stop=None if stop is None else _stop(stop),
        slots=tuple(sorted(_text(record, "slots").split())) if record[b"status"] == b"running" else (),
        blocked=_text(record, "blocked").partition("|")[0],
        inputs=_inputs(record, facts.edge) if inputs else (),
        outputs=tuple(sorted(_prefixed(record, b"out:"))) if outputs else (),
        emitted=tuple(sorted(handle for handle, _ in _prefixed(record, b"out:"))),
        cached=_text(record, "cached"),
        kept=_text(record, "kept"),
        child=_text(record, "child"),
        postponed=_number(record, "postponed"),
        items=_items(record),
        wait=_wait(record[b"wait"]) if record[b"status"] == b"suspended" else None,
        resumed=_resumption(record[b"resumed"]) if b"resumed" in record else None,
    )


def _inputs(record: Mapping[bytes, bytes], only: int | None) -> tuple[tuple[int, str], ...]:
    """What came along which edges; `only` is the edge of a node that has a single one."""
    if only is not None and b"input" in record:
        return ((only, _text(record, "input")),)
    return tuple(sorted((int(at), value) for at, value in _prefixed(record, b"in:")))


def _items(record: Mapping[bytes, bytes]) -> ItemCounts | None:
    return ItemCounts(*(_number(record, f"items_{name}") for name in _COUNTS)) if b"items_total" in record else None


def _prefixed(record: Mapping[bytes, bytes], prefix: bytes) -> list[tuple[str, str]]:
    return [(k[len(prefix) :].decode(), v.decode()) for k, v in record.items() if k.startswith(prefix)]


class _ComponentFacts(msgspec.Struct, array_like=True, frozen=True):
    """What is known of a component from its beginning; as `pack_facts` of records.lua writes it."""

    run_id: str
    user_id: str
    plan: str
    nodes: int
    policy: str
    partition: int
    planned_ms: int
    traceparent: str | bool
    parts: int | bool
    submitted_at: int
    node_type: str
    edition: str
    has_inputs: bool


def _component(run: RunName, component_id: str, record: Mapping[bytes, bytes]) -> Component:
    stop = record.get(b"stop")
    facts = _unpacked(record[b"facts"], _ComponentFacts)
    return Component(
        run=run,
        run_id=facts.run_id,
        component_id=component_id,
        status=ComponentStatus(_text(record, "status")),
        user_id=facts.user_id,
        plan=facts.plan,
        nodes=facts.nodes,
        completed=_number(record, "completed"),
        failed=_number(record, "failed"),
        terminated=_number(record, "terminated"),
        skipped=_number(record, "skipped"),
        sinks_completed=_number(record, "sinks"),
        submitted_at=facts.submitted_at,
        finished_at=_number(record, "finished_at"),
        stop=None if stop is None else _stop(stop),
        node_type=facts.node_type,
        running=_number(record, "running"),
        cached=_number(record, "cached"),
        withheld=_text(record, "early") == "held" and _text(record, "status") == "running",
    )
