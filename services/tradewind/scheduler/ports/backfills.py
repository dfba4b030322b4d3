"""Backfills on record."""

from collections.abc import Collection, Sequence
from typing import Protocol

from tradewind.scheduler.domain.backfill import Backfill, BackfillDraft, BackfillOutcome


class Backfills(Protocol):
    """Backfills of flows. `CycleRecords.begin` begins their cycles and moves them on; a run is counted when it ends."""

    async def create(self, draft: BackfillDraft) -> tuple[BackfillOutcome, int]:
        """Put a backfill on record, under way, and return the outcome and its id.

        A request seen before is answered `repeated` with the first id, or `reused` if it has another payload; the
        answer is `full` when too many backfills of the flow are under way. The newest 100 backfills of a flow are kept,
        for 7 days after they end.
        """
        ...

    async def load(self, flow_id: str, backfill_id: int) -> Backfill | None:
        """Return a backfill, None when there is none. Raises Unreadable."""
        ...

    async def find(self, flow_id: str, backfill_ids: Sequence[int]) -> list[Backfill | None]:
        """Return backfills in the order asked for, None for those that are not there or cannot be read."""
        ...

    async def ids(self, flow_id: str) -> list[int]:
        """Return the ids of a flow's backfills, the newest first."""
        ...

    async def active(self, partitions: Collection[int], limit: int) -> list[tuple[str, int]]:
        """Return backfills that may begin cycles, as flow and id, up to `limit` of each partition.

        A backfill is left out while as many of its cycles run as may, none is left to begin, or an attempt found its
        flow paused; but at most for 5 minutes after the last change.
        """
        ...

    async def cancel(self, flow_id: str, backfill_id: int, reason: str) -> bool:
        """Begin no more cycles of a backfill, and say whether it was under way.

        Running cycles go on; the planned times left are put on record as dropped.
        """
        ...
