"""Flows in Redis."""

import asyncio
import heapq
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any, TypeAlias

import msgspec

from tradewind.scheduler.domain.flow_definition import OverlapPolicy
from tradewind.scheduler.domain.flow_record import (
    FlowOutline,
    FlowRecord,
    FlowRegistration,
    FlowStop,
    Pause,
    RegisterOutcome,
    StatusAnswer,
    StatusChange,
    StatusOutcome,
)
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.schedule_definition import schedule_from_json
from tradewind.scheduler.stores.redis.fields import fields_of
from tradewind.scheduler.stores.redis.ranks import STOPPING
from tradewind.scheduler.stores.redis.scripts import TOMBSTONE_MS, Scripted, request_args, script
from tradewind.server.faults import Unreadable
from tradewind.server.partitions import PARTITIONS
from tradewind.server.reading import UnreadableLog, reading
from tradewind.server.redis.records import read_each
from tradewind.server.redis.script import Reply

_LEAST_OUTLINED = 8
"""How many flows of each partition are read at least, since few flows are not divided equally."""


_Row: TypeAlias = tuple[str, str, str, str, int, int]


class _Outlines(msgspec.Struct, array_like=True):
    outlines: list[_Row]
    after: str


class _StatusChanged(msgspec.Struct, array_like=True):
    outcome: StatusOutcome
    found: str
    stopping: list[tuple[int, int]]
    more: bool


_REGISTER = script("register_flow", tuple[RegisterOutcome, int])
_OUTLINE = script("outline_flows", _Outlines)
_CHANGE_STATUS = script("change_status", _StatusChanged)
_RAISE_EPOCH = script("raise_epoch", int)
_REMOVE = script("remove_flow", bool)


class RedisFlows:
    """Implements FlowRecords."""

    def __init__(self, scripted: Scripted, kept_revisions: int) -> None:
        self._kept_revisions = kept_revisions
        self._scripted = scripted
        self._client = scripted.client
        self._keys = scripted.keys
        self._unreadable = UnreadableLog(__name__)

    async def register(self, registration: FlowRegistration) -> tuple[RegisterOutcome, int]:
        return await self._scripted.call_for_flow(
            _REGISTER,
            registration.flow_id,
            user_id=registration.user_id,
            config=registration.config_json,
            structure=registration.structure_json,
            labels=msgspec.json.encode(dict(registration.labels)).decode(),
            digest=registration.digest,
            schedule=registration.schedule.to_json(),
            interval=registration.schedule.interval_ms,
            first=registration.first_ms,
            passed=registration.passed is not None and astuple(registration.passed),
            overlap=registration.overlap.value,
            keep=registration.keep_cycles,
            pause_after=registration.pause_after_failures,
            by=registration.by,
            note=registration.note,
            kept=self._kept_revisions,
            etag=registration.etag,
            owner_only=registration.owner_only,
            **request_args(registration.request),
        )

    async def find(self, flow_ids: Sequence[str]) -> list[FlowRecord | None]:
        if not flow_ids:
            return []
        keys, cycles = list(map(self._keys.flow, flow_ids)), list(map(self._keys.cycles, flow_ids))
        records, running = await asyncio.gather(
            read_each(self._client, keys, "HGETALL"), read_each(self._client, cycles, "ZCOUNT", STOPPING, "+inf")
        )
        return [_found(key, record, count) for key, record, count in zip(keys, records, running, strict=True)]

    async def owners(self, flow_ids: Sequence[str]) -> list[str | None]:
        owners = await read_each(self._client, list(map(self._keys.flow, flow_ids)), "HGET", "user_id")
        return [owner.decode(errors="replace") if isinstance(owner, bytes) else None for owner in owners]

    async def list_ids(self, after: str, limit: int) -> list[str]:
        indexes = list(map(self._keys.flows, range(PARTITIONS)))
        least = f"({after}" if after else "-"
        replies = await read_each(self._client, indexes, "ZRANGEBYLEX", least, "+", "LIMIT", 0, limit)
        found = heapq.merge(*self._readable(replies))
        return [flow_id.decode() for flow_id, _ in zip(found, range(limit), strict=False)]

    async def outlines(self, after: str, limit: int) -> tuple[list[FlowOutline], str]:
        # Each partition holds about as many of the flows that come next: ask each for a little more than its share.
        each = _LEAST_OUTLINED + limit // PARTITIONS
        calls = [
            ((self._keys.owner(partition),), self._scripted.args(partition, after=after, flows=each))
            for partition in range(PARTITIONS)
        ]
        replies = self._readable(await _OUTLINE.each(self._client, calls))
        # Beyond where a partition has more, flows of it may be missing.
        frontier = min((reply.after for reply in replies if reply.after), default="")
        rows = sorted(row for reply in replies for row in reply.outlines if not frontier or row[0] <= frontier)
        found = filter(None, map(self._outline, rows[:limit]))
        return list(found), rows[limit - 1][0] if len(rows) > limit else frontier

    def _readable(self, replies: Sequence[Reply | Unreadable]) -> list[Reply]:
        """Return what was read of the partitions; one whose index is of another type is logged, and has no flows."""
        readable: list[Reply] = []
        for reply in replies:
            if isinstance(reply, Unreadable):
                self._unreadable.note(reply)
            else:
                readable.append(reply)
        return readable

    def _outline(self, row: _Row) -> FlowOutline | None:
        """Return what lists choose a flow by; if its record cannot be read, logs that and returns None."""
        flow_id, user_id, status, labels, created_ms, size = row
        try:
            with reading(self._keys.flow(flow_id)):
                return FlowOutline(flow_id, user_id, FlowStatus(status), _labels(labels), created_ms, size)
        except Unreadable as error:
            self._unreadable.note(error)
            return None

    async def change_status(self, change: StatusChange) -> StatusAnswer:
        answer: StatusAnswer | None = None
        allowed_from = [status.value for status in change.allowed_from]
        while True:
            reply = await self._scripted.call_for_flow(
                _CHANGE_STATUS,
                change.flow_id,
                status=change.status.value,
                **{"from": allowed_from},
                start_at=change.start_at_ms,
                by=change.by,
                reason=change.reason,
                passed=change.passed is not None and astuple(change.passed),
                over=change.over,
            )
            stopping = tuple(RunName(change.flow_id, cycle, run) for cycle, run in reply.stopping)
            if answer is None:
                found = FlowStatus(reply.found) if reply.found else None
                answer = StatusAnswer(reply.outcome, found, stopping)
            else:
                answer = StatusAnswer(answer.outcome, answer.found, answer.stopping + stopping)
            if not reply.more:
                return answer
            # Further calls only mark runs: if somebody has started the flow meanwhile, they must not stop it again.
            allowed_from = []

    async def definition(self, flow_id: str, revision: int) -> str | None:
        key, revisions = self._keys.flow(flow_id), self._keys.revisions(flow_id)
        (flow,), (older,) = await asyncio.gather(
            read_each(self._client, [key], "HMGET", "revision", "config"),
            read_each(self._client, [revisions], "HGET", str(revision)),
        )
        with reading(key, flow):
            is_current = flow[0] is not None and int(flow[0]) == revision
        text = flow[1] if is_current else older
        with reading(key if is_current else revisions, text):
            return None if text is None else text.decode()

    async def raise_schedule_epoch(self, flow_id: str) -> int:
        return await self._scripted.call_for_flow(_RAISE_EPOCH, flow_id)

    async def remove_step(self, flow_id: str, cycles: int = 100) -> bool:
        return await self._scripted.call_for_flow(_REMOVE, flow_id, cycles=cycles, tombstone_ms=TOMBSTONE_MS)


def _found(key: str, record: Any, running: Any) -> FlowRecord | None:
    with reading(key, record, running):
        return _record(fields_of(record), running) if record else None


def _record(text: Mapping[str, str], running: int) -> FlowRecord:
    return FlowRecord(
        flow_id=text["id"],
        user_id=text["user_id"],
        status=FlowStatus(text["status"]),
        config_json=text["config"],
        structure_json=text["structure"],
        labels=_labels(text["labels"]),
        last_cycle=int(text["last_cycle"]),
        next_execution_ms=int(text["next_execution"]),
        created_ms=int(text["created_at"]),
        updated_ms=int(text["updated_at"]),
        revision=int(text["revision"]),
        digest=text["digest"],
        schedule=schedule_from_json(text["schedule"]),
        overlap=OverlapPolicy(text["overlap"]),
        keep_cycles=int(text["keep_cycles"]),
        schedule_epoch=int(text["schedule_epoch"]),
        anchor_ms=int(text.get("anchor", 0)),
        running_cycles=running,
        pause=_pause(text) if "paused_at" in text else None,
        stop=_stop(text) if "stopped_at" in text else None,
    )


def _labels(text: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(msgspec.json.decode(text, type=dict[str, str]).items()))


def _pause(text: Mapping[str, str]) -> Pause:
    return Pause(
        text["paused_by"],
        text["note"],
        int(text["paused_at"]),
        int(text["paused_next"]),
        int(text.get("paused_failures", 0)),
        int(text.get("paused_failed_cycle", -1)),
    )


def _stop(text: Mapping[str, str]) -> FlowStop:
    return FlowStop(text["stopped_by"], text["stop_reason"], int(text["stopped_at"]))
