"""Sweeps the indexes for entries without a trigger, and looks for due triggers without a receiver."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import structlog

from tradewind.server.faults import Unreadable
from tradewind.server.partitions import PARTITIONS
from tradewind.server.reading import UnreadableLog
from tradewind.trigger.ports.queues import QueueStore
from tradewind.trigger.use_cases.log_losses import log_orphans

_log = structlog.get_logger(__name__)


def indexes_of(queue: str) -> tuple[str, ...]:
    """Return the names of the indexes of a queue, or of the flows, whose triggers no index lists as a whole."""
    return ("all", "due", "claimed", "dead") if queue else ("due", "claimed", "dead")


class SweepIndexes:
    """Removes entries without a trigger, adds entries that triggers lack, and logs both.

    `overdue_ms` is how late a trigger may be before the log says that nobody receives it.
    """

    def __init__(self, queues: QueueStore, overdue_ms: int) -> None:
        self._queues = queues
        self._overdue_ms = overdue_ms
        self._unreadable = UnreadableLog(__name__)

    async def __call__(self) -> None:
        """Sweep everything, a part of an index at a time."""
        for partition in range(PARTITIONS):
            for queue in ("", *await self._queues_of(partition)):
                with self._noting_unreadable():
                    for index in indexes_of(queue):
                        await self._sweep(partition, queue, index)
                    await self._check_receivers(partition, queue)

    async def _queues_of(self, partition: int) -> Sequence[str]:
        with self._noting_unreadable():
            return await self._queues.queues(partition)
        return ()

    @contextmanager
    def _noting_unreadable(self) -> Iterator[None]:
        """Go on with the others when something is of another type."""
        try:
            yield
        except Unreadable as error:
            self._unreadable.note(error)

    async def _sweep(self, partition: int, queue: str, index: str) -> None:
        first: int | None = 0
        while first is not None:
            swept = await self._queues.sweep(partition, queue, index, first)
            log_orphans(swept.orphans)
            for trigger_id in swept.mended:
                _log.error("trigger_without_entry", queue=queue, trigger_id=trigger_id, hint="it was put back")
            first = swept.next_rank

    async def _check_receivers(self, partition: int, queue: str) -> None:
        counts = await self._queues.counts(partition, queue)
        if counts.first_ms is not None and counts.now_ms - counts.first_ms > self._overdue_ms:
            _log.error(
                "triggers_not_received",
                queue=queue,
                partition=partition,
                late_ms=counts.now_ms - counts.first_ms,
                hint="start a receiver of the queue" if queue else "no scheduler receives this partition",
            )
