"""The store of revisions; its errors pass through, like those of every store."""

from typing import Protocol

from tradewind.scheduler.domain.revision import Revision


class Revisions(Protocol):
    """Revisions of flows. `FlowRecords.register` writes them, and `FlowRecords.definition` reads their definitions."""

    async def newest(self, flow_id: str, below: int, limit: int) -> list[Revision]:
        """Return up to `limit` revisions on record, newest first, from below number `below` (0: from the current one).

        Each has the number of open runs that use it. For a flow that does not exist there are none.
        """
        ...
