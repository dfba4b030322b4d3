"""Reading node tasks of one shard in Redis."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from tradewind.node_task_manager.domain.component import Component
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import ELSEWHERE, NodeTask
from tradewind.node_task_manager.ports.reading import StoredLine
from tradewind.node_task_manager.stores.keys import Keys
from tradewind.node_task_manager.stores.redis_records import (
    COMPONENT_FIELDS,
    FIELDS,
    Record,
    component_of,
    emitted_handles,
    may_have_several_inputs,
    outputs_of,
    place_of,
    plan_of,
    state_of,
    task_of,
    text_of,
)
from tradewind.server.faults import Unreadable
from tradewind.server.reading import UnreadableLog, reading
from tradewind.server.redis.client import Client, Pipeline
from tradewind.server.redis.records import read_all, read_of

_PIECE = 500
_WHOLE_PIECE = 64
_OPEN = 2**46
"""How much more open runs score among the runs of a user."""


class _Node(msgspec.Struct, frozen=True):
    """The one field that matters here of what a plan says about a node."""

    fields: tuple[str, ...] | None = None


_node = msgspec.msgpack.Decoder(_Node).decode


class RedisNodeTaskReader:
    """A NodeTaskReader; reads in pipelines of at most 500 records, or 64 if it reads their values too."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._unreadable = UnreadableLog(__name__)

    async def tasks(self, ids: Sequence[str], *, inputs: bool = False, outputs: bool = False) -> list[NodeTask | None]:
        found: list[NodeTask | None] = []
        size = _WHOLE_PIECE if inputs or outputs else _PIECE
        for first in range(0, len(ids), size):
            piece = ids[first : first + size]
            pipeline = self._client.pipeline(transaction=False)
            pipeline.execute_command("ZMSCORE", self._keys.inflight(), *piece)
            for task_id in piece:
                self._queue_read(pipeline, task_id, FIELDS)
            deadlines, *values = await pipeline.execute()
            records = [_present_fields(FIELDS, each) for each in values]
            if inputs or outputs:
                await self._add_values(piece, records, inputs=inputs, outputs=outputs)
            for task_id, record, deadline in zip(piece, records, deadlines, strict=True):
                found.append(task_of(task_id, record, deadline) if "state" in record else None)
        return await self._with_kept_outputs(found) if outputs else found

    def _queue_read(self, pipeline: Pipeline, task_id: str, fields: Sequence[str]) -> None:
        run, at = place_of(task_id)
        pipeline.hmget(self._keys.run(run), [at + field for field in fields])

    async def _read(self, wanted: Sequence[tuple[str, Sequence[str]]]) -> list[Record]:
        """Return what there is of the wanted fields of each node task (id, fields), read in one pipeline."""
        pipeline = self._client.pipeline(transaction=False)
        for task_id, fields in wanted:
            self._queue_read(pipeline, task_id, fields)
        read = await pipeline.execute() if wanted else []
        return [_present_fields(fields, values) for (_, fields), values in zip(wanted, read, strict=True)]

    async def _add_values(
        self, ids: Sequence[str], records: Sequence[Record], *, inputs: bool = False, outputs: bool = False
    ) -> None:
        """Add the values of edges and the emitted values to records."""
        named = await self._input_fields(ids, records) if inputs else {}
        wanted: list[tuple[str, list[str]]] = []
        lacking: list[Record] = []
        for task_id, record in zip(ids, records, strict=True):
            names = ["input", *named.get(task_id, ())] if inputs else []
            names += [f"out:{handle}" for handle in emitted_handles(record)] if outputs else ()
            if names:
                wanted.append((task_id, names))
                lacking.append(record)
        for record, values in zip(lacking, await self._read(wanted), strict=True):
            record |= values

    async def _input_fields(self, ids: Sequence[str], records: Sequence[Record]) -> dict[str, list[str]]:
        """Return the input fields of node tasks that may have several, as their plans name them."""
        several = [(id, record) for id, record in zip(ids, records, strict=True) if may_have_several_inputs(id, record)]
        if not several:
            return {}
        pipeline = self._client.pipeline(transaction=False)
        for task_id, record in several:
            pipeline.hget(self._keys.run(place_of(task_id)[0]), f"{state_of(record).component_id}/facts")
        places = [
            (plan_of(facts), f"n:{state_of(record).index}")
            for (_, record), facts in zip(several, await pipeline.execute(), strict=True)
        ]
        pipeline = self._client.pipeline(transaction=False)
        for digest, field in places:
            pipeline.hget(self._keys.plan(digest), field)
        found: dict[str, list[str]] = {}
        for (task_id, _), node in zip(several, await pipeline.execute(), strict=True):
            named = None if node is None else _node(node).fields
            found[task_id] = list(named) if named is not None else await self._all_inputs(task_id)
        return found

    async def _all_inputs(self, task_id: str) -> list[str]:
        """Return the input fields of a node task with more edges than its plan names in one place."""
        run, at = place_of(task_id)
        names = await self._client.execute_command("HKEYS", self._keys.run(run))
        within = f"{at}in:".encode()
        return [name[len(at) :].decode() for name in names if name.startswith(within)]

    async def _with_kept_outputs(self, found: list[NodeTask | None]) -> list[NodeTask | None]:
        """Fill in the outputs of node tasks of reruns, where they refer to results of an earlier run."""
        kept = [task.kept for task in found if task is not None and task.kept]
        emitted = dict(zip(kept, await self.emitted(kept), strict=True)) if kept else {}
        return [replace(task, outputs=emitted[task.kept]) if task is not None and task.kept else task for task in found]

    async def components(self, wanted: Sequence[tuple[RunName, str]]) -> list[Component | None]:
        found: list[Component | None] = []
        for first in range(0, len(wanted), _PIECE):
            piece = wanted[first : first + _PIECE]
            commands = (
                ("HMGET", self._keys.run(str(run)), *(f"{component_id}/{field}" for field in COMPONENT_FIELDS))
                for run, component_id in piece
            )
            for (run, component_id), values in zip(piece, await read_all(self._client, commands), strict=True):
                found.append(self._component(run, component_id, values))
        return found

    def _component(self, run: RunName, component_id: str, values: Any) -> Component | None:
        """Return a component, None for one that cannot be read: the others must not suffer."""
        key = self._keys.run(str(run))
        try:
            with reading(key, values):
                return component_of(run, component_id, _present_fields(COMPONENT_FIELDS, values))
        except Unreadable as error:
            self._unreadable.note(error)
            return None

    async def component_ids(self, run: RunName) -> tuple[str, ...]:
        packed, facts = await self._client.hmget(self._keys.run(str(run)), ["components", "0/facts"])
        if packed is None:
            return () if facts is None else ("0",)
        return tuple(msgspec.msgpack.decode(packed))

    async def held_by(self, worker_id: str) -> list[str]:
        return [member.decode() for member in await self._client.zrange(self._keys.worker_tasks(worker_id), 0, -1)]

    async def emitted(self, ids: Sequence[str]) -> list[tuple[tuple[str, str], ...]]:
        found: list[tuple[tuple[str, str], ...]] = []
        for first in range(0, len(ids), _WHOLE_PIECE):
            piece = ids[first : first + _WHOLE_PIECE]
            records = await self._read([(task_id, ("state", "kept")) for task_id in piece])
            kept = [text_of(record, "kept") for record in records if "kept" in record]
            results = iter(await self.emitted(kept) if kept else ())
            own = [(task_id, record) for task_id, record in zip(piece, records, strict=True) if "kept" not in record]
            await self._add_values([task_id for task_id, _ in own], [record for _, record in own], outputs=True)
            found += [next(results) if "kept" in record else outputs_of(record) for record in records]
        return found

    async def run_inputs(self, run: RunName, component_id: str) -> str:
        own, common = await self._client.hmget(self._keys.run(str(run)), [f"{component_id}/inputs", "inputs"])
        return (own or common or b"").decode()

    async def outputs(self, wanted: Sequence[tuple[str, str]]) -> list[str | None]:
        values: list[str | None] = []
        for first in range(0, len(wanted), _WHOLE_PIECE):
            piece = wanted[first : first + _WHOLE_PIECE]
            records = await self._read([(task_id, (f"out:{handle}",)) for task_id, handle in piece])
            values += [
                text_of(record, f"out:{handle}") or None for (_, handle), record in zip(piece, records, strict=True)
            ]
        elsewhere = [at for at, value in enumerate(values) if value == ELSEWHERE]
        if elsewhere:
            records = await self._read([(wanted[at][0], ("kept",)) for at in elsewhere])
            sources = {
                # A run may be removed between two reads.
                at: text_of(record, "kept")
                for at, record in zip(elsewhere, records, strict=True)
                if "kept" in record
            }
            kept = await self.outputs([(source, wanted[at][1]) for at, source in sources.items()])
            found = dict(zip(sources, kept, strict=True))
            for at in elsewhere:
                values[at] = found.get(at)
        return values

    async def runs_of(
        self, user_id: str, kind: str, after: tuple[int, str] | None, limit: int, *, only_open: bool = False
    ) -> list[tuple[int, str]]:
        key = self._keys.user_runs(user_id, kind)
        found = set(await self._newest(key, after, limit, _OPEN))
        if not only_open:
            # Read last, so that a run which ends meanwhile is found here, if not there.
            found.update(await self._newest(key, after, limit))
        return sorted(found, reverse=True)[:limit]

    async def dead_letters(self, user_id: str, after: tuple[int, str] | None, limit: int) -> list[tuple[int, str]]:
        return await self._newest(self._keys.dead_letters(user_id), after, limit)

    async def _newest(
        self, key: str, after: tuple[int, str] | None, limit: int, base: int = 0
    ) -> list[tuple[int, str]]:
        """Return the newest entries following `after`, of those whose scores are their times and `base`."""
        highest = f"({base + _OPEN}" if after is None else base + after[0]
        found: list[tuple[int, str]] = []
        skipped, size = 0, limit + 1
        # Entries of the same millisecond are ordered by name, so some of them may come before `after`.
        while len(found) < limit and size == limit + 1:
            args = (key, highest, base, "BYSCORE", "REV", "LIMIT", skipped, limit + 1, "WITHSCORES")
            with read_of(key):
                flat = await self._client.execute_command("ZRANGE", *args)
            pairs = [
                (int(float(score)) - base, member.decode()) for member, score in zip(flat[::2], flat[1::2], strict=True)
            ]
            found += [pair for pair in pairs if after is None or pair < after]
            skipped, size = skipped + limit + 1, len(pairs)
        return found[:limit]

    async def lines(self, run: RunName, after: str, limit: int) -> list[StoredLine]:
        start = f"({after}" if after else "-"
        key = self._keys.logs(run.log)
        with read_of(key):
            entries = await self._client.execute_command("XRANGE", key, start, "+", "COUNT", limit)
        return [
            msgspec.convert({"log_id": entry_id.decode(), **msgspec.msgpack.decode(fields[b"l"])}, StoredLine)
            for entry_id, fields in entries
        ]


def _present_fields(fields: Sequence[str], values: Sequence[bytes | None]) -> Record:
    return {field: value for field, value in zip(fields, values, strict=True) if value is not None}
