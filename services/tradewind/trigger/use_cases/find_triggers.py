"""Finds triggers and their history, and counts them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from tradewind.server.faults import NotFound
from tradewind.server.partitions import PARTITIONS, partition_of
from tradewind.trigger.domain.claim import Firing
from tradewind.trigger.domain.policy import BATCH_BYTES
from tradewind.trigger.domain.trigger import Trigger
from tradewind.trigger.ports.queues import Counts, QueueStore
from tradewind.trigger.ports.triggers import Page, Position, TriggerStore


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a listing goes on: in a partition, among its scheduled or its claimed triggers, after a position."""

    partition: int = 0
    claimed: bool = False
    after: Position | None = None


Listing = tuple[Sequence[Trigger], Cursor | None]
"""Triggers, and where the next page begins."""

_Read = Callable[[Cursor, int], Awaitable[Page]]


class FindTriggers:
    """Reads triggers of a queue, or of the flows; claims and changes none."""

    def __init__(self, store_of: Callable[[str], TriggerStore], queues: QueueStore) -> None:
        self._store_of = store_of
        self._queues = queues

    async def one(self, trigger_id: str, partition_key: str, queue: str) -> Trigger:
        """Return a trigger. Raises NotFound."""
        trigger = await self._store_of(queue).find(partition_of(queue or partition_key), trigger_id)
        if trigger is None:
            raise NotFound("trigger", trigger_id)
        return trigger

    async def epochs(self, trigger_ids: Sequence[str]) -> dict[str, int]:
        """Return the epochs of those of these triggers of flows that exist, each its own partition key."""
        store = self._store_of("")
        found = await asyncio.gather(*(store.find(partition_of(each), each) for each in trigger_ids))
        return {trigger.id: trigger.epoch for trigger in found if trigger is not None}

    async def due(self, up_to_ms: int, cursor: Cursor, size: int, queue: str) -> Listing:
        """Return a page of triggers to be delivered at or before `up_to_ms` (0: now), and where the next page begins.

        Partition by partition, earliest first within each.
        """
        store = self._store_of(queue)
        return await _collect(
            lambda at, limit: store.page_scheduled(at.partition, up_to_ms, at.after, limit), cursor, size, queue
        )

    async def pending(self, cursor: Cursor, size: int, queue: str) -> Listing:
        """Return a page of triggers that will still fire at their time, and where the next page begins.

        Partition by partition, first scheduled triggers by their time, then claimed ones by the end of their lease. A
        trigger that changes between the two during the listing may be listed twice or not at all.
        """
        store = self._store_of(queue)

        def read(at: Cursor, limit: int) -> Awaitable[Page]:
            if at.claimed:
                return store.page_claimed(at.partition, at.after, limit)
            return store.page_scheduled(at.partition, None, at.after, limit)

        return await _collect(read, cursor, size, queue, with_claimed=True)

    async def all(self, cursor: Cursor, size: int, queue: str) -> Listing:
        """Return a page of a queue's triggers in order of creation, and where the next page begins."""
        return await _collect(
            lambda at, limit: self._queues.page_all(at.partition, queue, at.after, limit), cursor, size, queue
        )

    async def dead(self, cursor: Cursor, size: int, queue: str) -> Listing:
        """Return a page of dead triggers and firings, and where the next page begins."""
        return await _collect(
            lambda at, limit: self._queues.page_dead(at.partition, queue, at.after, limit), cursor, size, queue
        )

    async def firings(
        self, queue: str, partition_key: str, after: str, size: int, trigger_id: str
    ) -> tuple[Sequence[Firing], str]:
        """Return a page of the fire history, newest first, and the position at which the next page begins."""
        partition = partition_of(queue or partition_key)
        return await self._queues.firings(partition, queue, after, size, trigger_id)

    async def counts(self, queue: str) -> Sequence[Counts]:
        """Return the counts of a queue, or of the flows in each partition."""
        partitions = [partition_of(queue)] if queue else range(PARTITIONS)
        return await asyncio.gather(*(self._queues.counts(partition, queue) for partition in partitions))

    async def count_listeners(self, event: str) -> int:
        """Return how many triggers listen to events of a name."""
        return await self._queues.count_listeners(event)


async def _collect(read: _Read, cursor: Cursor, size: int, queue: str, *, with_claimed: bool = False) -> Listing:
    last = partition_of(queue) if queue else PARTITIONS - 1
    at: Cursor | None = replace(cursor, partition=last) if queue else cursor
    found: list[Trigger] = []
    bytes_found = 0
    while at is not None and len(found) < size and bytes_found < BATCH_BYTES:
        page = await read(at, size - len(found))
        found += page.triggers
        bytes_found += page.size
        at = replace(at, after=page.end) if page.more else _next_cursor(at, last, with_claimed)
    return found, at


def _next_cursor(cursor: Cursor, last: int, with_claimed: bool) -> Cursor | None:
    if with_claimed and not cursor.claimed:
        return Cursor(cursor.partition, claimed=True)
    return Cursor(cursor.partition + 1) if cursor.partition < last else None
