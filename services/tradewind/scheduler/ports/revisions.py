"""What is needed of the store of revisions; its errors pass through, as those of every store."""

from typing import Protocol

from tradewind.scheduler.domain.revision import Revision


class Revisions(Protocol):
    """Revisions of flows. They are written with FlowRecords.register; `FlowRecords.definition` reads what they say."""

    async def newest(self, flow_id: str, below: int, limit: int) -> list[Revision]:
        """Return up to `limit` revisions that are on record, the newest first, from below one on (0: the current one).

        Each tells how many open runs go by it. Nothing for a flow that is not there.
        """
        ...
