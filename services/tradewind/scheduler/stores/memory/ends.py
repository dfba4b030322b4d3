"""Ends of runs that wait to be delivered, in memory."""

from collections.abc import Collection, Sequence

from tradewind.scheduler.domain.ended_run import MAX_KEPT, EndedRun
from tradewind.server.partitions import partition_of


class MemoryEnds:
    """Implements Ends."""

    def __init__(self, ends: dict[int, list[EndedRun]]) -> None:
        self._ends = ends

    async def waiting(self, partitions: Collection[int], limit: int) -> list[EndedRun]:
        return [end for partition in partitions for end in self._ends.get(partition, [])[:limit]]

    async def remove(self, ends: Sequence[EndedRun]) -> None:
        for end in ends:
            left = self._ends.get(partition_of(end.run.flow_id), [])
            if end in left:
                left.remove(end)


def add_end(ends_by_partition: dict[int, list[EndedRun]], end: EndedRun) -> None:
    """Add an end that is to be delivered."""
    partition = partition_of(end.run.flow_id)
    ends = [*ends_by_partition.get(partition, []), end]
    ordered = sorted(ends, key=lambda each: (each.end_ms, f"{each.run} {each.run_id} {each.status.value}"))
    ends_by_partition[partition] = ordered[-MAX_KEPT:]
