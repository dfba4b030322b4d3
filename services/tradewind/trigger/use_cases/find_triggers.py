"""Finding triggers: one by its id, all that are due, all that will still fire."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tradewind.server.faults import NotFound
from tradewind.server.partitions import PARTITIONS, partition_of
from tradewind.trigger.domain.policy import BATCH_BYTES
from tradewind.trigger.domain.trigger import Trigger
from tradewind.trigger.ports import Page, Position, TriggerStore


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a listing goes on: in a partition, among its scheduled or its claimed triggers, after a position."""

    partition: int = 0
    claimed: bool = False
    after: Position | None = None


_Read = Callable[[Cursor, int], Awaitable[Page]]


class FindTriggers:
    """Reads triggers; claims and changes none."""

    def __init__(self, triggers: TriggerStore) -> None:
        self._triggers = triggers

    async def one(self, trigger_id: str, partition_key: str) -> Trigger:
        """Return a trigger. Raises NotFound."""
        trigger = await self._triggers.find(partition_of(partition_key), trigger_id)
        if trigger is None:
            raise NotFound("trigger", trigger_id)
        return trigger

    async def due(self, up_to_ms: int, cursor: Cursor, size: int) -> tuple[Sequence[Trigger], Cursor | None]:
        """Return a page of what is to be delivered at or before `up_to_ms` (0: now), and where the next one begins.

        Partition by partition, earliest first within each.
        """

        async def read(at: Cursor, limit: int) -> Page:
            return await self._triggers.page_scheduled(at.partition, up_to_ms, at.after, limit)

        return await self._collect(read, cursor, size, with_claimed=False)

    async def pending(self, cursor: Cursor, size: int) -> tuple[Sequence[Trigger], Cursor | None]:
        """Return a page of what will still fire, and where the next one begins.

        Partition by partition, first the scheduled ones by their time, then the claimed ones by the end of their
        lease. One that changes between the two while it is listed may come twice or not at all.
        """

        async def read(at: Cursor, limit: int) -> Page:
            if at.claimed:
                return await self._triggers.page_claimed(at.partition, at.after, limit)
            return await self._triggers.page_scheduled(at.partition, None, at.after, limit)

        return await self._collect(read, cursor, size, with_claimed=True)

    async def _collect(
        self, read: _Read, cursor: Cursor | None, size: int, *, with_claimed: bool
    ) -> tuple[Sequence[Trigger], Cursor | None]:
        found: list[Trigger] = []
        weight = 0
        while cursor is not None and len(found) < size and weight < BATCH_BYTES:
            page = await read(cursor, size - len(found))
            found += page.triggers
            weight += sum(len(trigger.payload_json) for trigger in page.triggers)
            if page.more:
                cursor = Cursor(cursor.partition, cursor.claimed, page.end)
            else:
                cursor = _following(cursor, with_claimed)
        return found, cursor


def _following(cursor: Cursor, with_claimed: bool) -> Cursor | None:
    if with_claimed and not cursor.claimed:
        return Cursor(cursor.partition, claimed=True)
    return Cursor(cursor.partition + 1) if cursor.partition + 1 < PARTITIONS else None
