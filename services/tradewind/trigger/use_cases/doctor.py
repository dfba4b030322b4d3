"""Examines triggers and their indexes for broken invariants."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tradewind.server.doctor import Examined, Examiner, Finding
from tradewind.server.partitions import PARTITIONS
from tradewind.trigger.use_cases.sweep_indexes import indexes_of


class IndexDoctor(Protocol):
    """Examines the indexes of triggers."""

    async def queues(self, partition: int) -> Sequence[str]:
        """Return the names of the queues whose triggers are in a partition."""
        ...

    async def examine(
        self,
        partition: int,
        queue: str,
        index: str,
        first: int,
        limit: int,
        recheck: Collection[str] | None,
        mend: bool,
    ) -> tuple[int, Sequence[Finding]]:
        """Examine up to `limit` entries of an index from rank `first` on, as Examiner says.

        Returns how many there were, and the findings.
        """
        ...


@dataclass(frozen=True, slots=True)
class ExamineIndex:
    """An Examiner of an index of a queue, or of the flows when `queue` is ""; a place is a rank."""

    queues: IndexDoctor
    partition: int
    queue: str
    index: str

    async def __call__(self, at: str, records: int, recheck: Collection[str] | None, mend: bool) -> Examined:
        first = int(at or 0)
        seen, findings = await self.queues.examine(
            self.partition, self.queue, self.index, first, records, recheck, mend
        )
        # Entries that move up because others are removed are examined the next time.
        return Examined(seen, tuple(findings), str(first + seen) if seen == records else "")


class ExamineIndexes:
    """The examiners of all indexes; every replica examines all of them."""

    def __init__(self, queues: IndexDoctor) -> None:
        self._queues = queues

    async def __call__(self, everything: bool) -> Iterable[Examiner]:
        """Return an examiner for each index."""
        return [
            ExamineIndex(self._queues, partition, queue, index)
            for partition in range(PARTITIONS)
            for queue in ("", *await self._queues.queues(partition))
            for index in indexes_of(queue)
        ]
