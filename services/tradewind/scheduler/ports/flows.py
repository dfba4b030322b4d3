"""Flows on record."""

from collections.abc import Sequence
from typing import Protocol

from tradewind.scheduler.domain.flow_record import (
    FlowOutline,
    FlowRecord,
    FlowRegistration,
    RegisterOutcome,
    StatusAnswer,
    StatusChange,
)


class FlowRecords(Protocol):
    """Flows on record."""

    async def register(self, registration: FlowRegistration) -> tuple[RegisterOutcome, int]:
        """Put a definition on record and return the outcome and the revision.

        A new revision keeps last_cycle, created_at and status; registering the digest on record changes nothing. A
        running flow whose schedule changed gets a higher schedule epoch and goes into the outbox, as does one that
        begins on events and changes hands. A request seen before is answered `repeated`, or `reused` if it has another
        payload. After that, a registration whose etag is not the flow's is answered `moved`, or `not_found` without a
        flow, and changes nothing. A registration for the owner only is answered `not_owner` when the flow belongs to
        another user.

        The newest 100 revisions stay readable, the new one included, as do older ones that open runs use.
        """
        ...

    async def find(self, flow_ids: Sequence[str]) -> list[FlowRecord | None]:
        """Return flows in the order asked for, None where there is none. Raises Unreadable."""
        ...

    async def owners(self, flow_ids: Sequence[str]) -> list[str | None]:
        """Return the owners of flows, in the order asked for, None where there is no flow that can be read."""
        ...

    async def list_ids(self, after: str, limit: int) -> list[str]:
        """Return up to `limit` ids greater than `after`, in byte order, over all partitions whose index can be read."""
        ...

    async def outlines(self, after: str, limit: int) -> tuple[list[FlowOutline], str]:
        """Return up to `limit` flows with ids greater than `after`, in byte order over all partitions, and the id to go
        on after, "" when no flows are left. There may be fewer, even none, while flows are left.

        It does not read definitions, however large they are, and works while the store takes no writes.
        """
        ...

    async def change_status(self, change: StatusChange) -> StatusAnswer:
        """Move a flow to another status; if it has that already, only its runs and backfills are affected.

        A change raises the schedule epoch and puts the flow into the outbox; planned times that wait are dropped unless
        the flow goes on running. Leaving `running` for good cancels the flow's backfills. It also marks every open run
        as stopping, raises the run's version and makes the run due for a check at once. A pause notes who paused the
        flow, why, and what was planned next.
        """
        ...

    async def definition(self, flow_id: str, revision: int) -> str | None:
        """Return the definition of a revision, None when it is not on record. Raises Unreadable."""
        ...

    async def raise_schedule_epoch(self, flow_id: str) -> int:
        """Raise a flow's schedule epoch and return it; 0 when there is no flow."""
        ...

    async def remove_step(self, flow_id: str, cycles: int = 100) -> bool:
        """Remove up to `cycles` runs of a flow that is being deleted, ended ones first, and at last the flow itself.

        Returns True when only a tombstone is left, which keeps later schedule epochs of this id higher; also when
        another caller has removed the flow and it has been registered again, which is then left as it is.
        """
        ...
