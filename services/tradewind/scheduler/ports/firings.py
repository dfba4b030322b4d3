"""The outcomes of the planned times of flows."""

from collections.abc import Collection
from typing import Protocol

from tradewind.scheduler.domain.firing import Firing


class Firings(Protocol):
    """The outcomes of the planned times of flows, written by the scripts that decide them."""

    async def newest(self, flow_id: str, before_ms: int, limit: int, backfill_id: int = 0) -> list[Firing]:
        """Return up to `limit` lines, latest planned time first, from before `before_ms` (0: from the latest).

        They are the lines of the flow, or of one backfill, which has a line for each of its times except those still to
        come.
        """
        ...

    async def waiting(self, partitions: Collection[int], limit: int) -> list[str]:
        """Return flows that have planned times waiting which may begin, up to `limit` of each partition.

        A flow whose next cycle could not begin, because another one runs, is left out until a cycle of it ends or it is
        changed, and at most for 5 minutes.
        """
        ...
