"""Backfills in Redis."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tradewind.scheduler.domain.backfill import MAX_ACTIVE, Backfill, BackfillDraft, BackfillOutcome, BackfillStatus
from tradewind.scheduler.domain.schedule_definition import schedule_from_json
from tradewind.scheduler.stores.redis.fields import fields_of
from tradewind.scheduler.stores.redis.scripts import RETENTION_MS, Scripted, request_args, script
from tradewind.server.faults import Unreadable
from tradewind.server.reading import UnreadableLog, reading
from tradewind.server.redis.records import read_all, read_each, read_of

_KEPT = 100
"""The most backfills of a flow to keep."""


_CREATE = script("create_backfill", tuple[BackfillOutcome, int])
_CANCEL = script("cancel_backfill", bool)


class RedisBackfills:
    """Implements Backfills."""

    def __init__(self, scripted: Scripted) -> None:
        self._scripted = scripted
        self._client = scripted.client
        self._keys = scripted.keys
        self._unreadable = UnreadableLog(__name__)

    async def create(self, draft: BackfillDraft) -> tuple[BackfillOutcome, int]:
        return await self._scripted.call_for_flow(
            _CREATE,
            draft.flow_id,
            **{"from": draft.from_ms},
            to=draft.to_ms,
            first=draft.first_ms,
            last=draft.last_ms,
            times=draft.times,
            max_running=draft.max_running,
            schedule=draft.schedule.to_json(),
            anchor=draft.anchor_ms,
            by=draft.by,
            keep_for=RETENTION_MS,
            **request_args(draft.request),
            max_active=MAX_ACTIVE,
            max_kept=_KEPT,
        )

    async def load(self, flow_id: str, backfill_id: int) -> Backfill | None:
        (found,) = await self._read(flow_id, [backfill_id])
        if isinstance(found, Unreadable):
            raise found
        return found

    async def find(self, flow_id: str, backfill_ids: Sequence[int]) -> list[Backfill | None]:
        found: list[Backfill | None] = []
        for backfill in await self._read(flow_id, backfill_ids):
            if isinstance(backfill, Unreadable):
                self._unreadable.note(backfill)
                backfill = None
            found.append(backfill)
        return found

    async def _read(self, flow_id: str, backfill_ids: Sequence[int]) -> list[Backfill | Unreadable | None]:
        filling = self._keys.filling(flow_id)
        keys = [self._keys.backfill(flow_id, backfill_id) for backfill_id in backfill_ids]
        records, running = await asyncio.gather(
            read_each(self._client, keys, "HGETALL"),
            read_all(self._client, [("ZCOUNT", filling, each, each) for each in backfill_ids]),
        )
        return [_found(key, record, count) for key, record, count in zip(keys, records, running, strict=True)]

    async def ids(self, flow_id: str) -> list[int]:
        index = self._keys.backfills(flow_id)
        with read_of(index):
            found = await self._client.execute_command("ZREVRANGE", index, 0, -1)
        return self._scripted.named_by(index, found, int)

    async def active(self, partitions: Collection[int], limit: int) -> list[tuple[str, int]]:
        keys = [self._keys.active_backfills(each) for each in partitions]
        found = await self._scripted.first_of(keys, limit, _active, up_to=self._scripted.now_ms())
        return [each for backfills in found for each in backfills]

    async def cancel(self, flow_id: str, backfill_id: int, reason: str) -> bool:
        return await self._scripted.call_for_flow(_CANCEL, flow_id, backfill_id=backfill_id, reason=reason)


def _active(member: str, _: int) -> tuple[str, int]:
    flow_id, backfill_id = member.split(":")
    return flow_id, int(backfill_id)


def _found(key: str, record: Any, running: Any) -> Backfill | Unreadable | None:
    try:
        with reading(key, record, running):
            return _backfill(fields_of(record), running) if record else None
    except Unreadable as error:
        return error


def _backfill(text: Mapping[str, str], running: int) -> Backfill:
    draft = BackfillDraft(
        flow_id=text["flow_id"],
        from_ms=int(text["from"]),
        to_ms=int(text["to"]),
        first_ms=int(text["first"]),
        last_ms=int(text["last"]),
        times=int(text["times"]),
        max_running=int(text["max_running"]),
        schedule=schedule_from_json(text["schedule"]),
        anchor_ms=int(text["anchor"]),
        by=text["by"],
    )
    return Backfill(
        draft,
        int(text["id"]),
        BackfillStatus(text["status"]),
        int(text["position"]),
        int(text["begun"]),
        int(text["skipped"]),
        running,
        int(text["completed"]),
        int(text["failed"]),
        int(text["created_at"]),
        int(text.get("ended_at", 0)),
        text.get("reason", ""),
        int(text.get("expired", 0)),
    )
