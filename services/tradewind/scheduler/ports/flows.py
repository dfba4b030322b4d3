"""Flows on record, the outcomes of their planned times, and what is still owed to other services."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tradewind.scheduler.domain.backfill import Backfill, BackfillDraft, BackfillOutcome
from tradewind.scheduler.domain.chain_state import UpdateResult
from tradewind.scheduler.domain.firing import Firing
from tradewind.scheduler.domain.flow_record import (
    FlowRecord,
    FlowRegistration,
    RegisterOutcome,
    StatusAnswer,
    StatusChange,
)
from tradewind.scheduler.domain.memory import Memory

Member = TypeVar("Member")


class FlowRecords(Protocol):
    """Flows on record."""

    async def register(self, registration: FlowRegistration) -> tuple[RegisterOutcome, int]:
        """Put a definition on record and return the outcome and the revision.

        A new revision keeps last_cycle, created_at and status; registering the digest on record changes nothing. A
        running flow whose schedule changed gets a higher schedule epoch and goes into the outbox. A request seen before
        is answered `repeated`, or `reused` if it has another payload. After that, a registration whose etag is not the
        flow's is answered `moved`, or `not_found` without a flow, and changes nothing. A registration for the owner
        only is answered `not_owner` when the flow belongs to another user.

        The newest 100 revisions stay readable, the new one included, as do older ones that open runs use.
        """
        ...

    async def find(self, flow_ids: Sequence[str]) -> list[FlowRecord | None]:
        """Return flows in the order asked for, None where there is none."""
        ...

    async def owners(self, flow_ids: Sequence[str]) -> list[str | None]:
        """Return the owners of flows, in the order asked for, None where there is no flow."""
        ...

    async def list_ids(self, after: str, limit: int) -> list[str]:
        """Return up to `limit` ids greater than `after`, in byte order, over all partitions."""
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
        """Return the definition of a revision, None when it is not on record."""
        ...

    async def raise_schedule_epoch(self, flow_id: str) -> int:
        """Raise a flow's schedule epoch and return it; 0 when there is no flow."""
        ...

    async def remove_step(self, flow_id: str, cycles: int = 100) -> bool:
        """Remove up to `cycles` cycles of a flow that is being deleted, and the flow itself with the last of them.

        Returns True when only a tombstone is left, which keeps later schedule epochs of this id higher.
        """
        ...


@dataclass(frozen=True, slots=True)
class DueCheck(Generic[Member]):
    """The members of a partition that are due now, longest due first, and when the next is due (ms), if any."""

    due: tuple[Member, ...]
    next_ms: int | None


class Outbox(Protocol):
    """Flows whose schedule must still reach the trigger service, or that must still be removed."""

    async def check(self, partitions: Collection[int], limit: int) -> dict[int, DueCheck[str]]:
        """Return, for each partition, up to `limit` flows to try now."""
        ...

    async def settle(self, flow_id: str, schedule_epoch: int) -> bool:
        """Take a flow out if it still has this schedule epoch; False when that has changed since."""
        ...

    async def postpone(self, flow_id: str, delay_ms: int) -> None:
        """Try a flow that is in the outbox again after `delay_ms`."""
        ...

    async def add(self, flow_id: str) -> None:
        """Have a flow's schedule sent to the trigger service again, as it is on record."""
        ...


@dataclass(frozen=True, slots=True)
class Tidied:
    """How far tidying has come: it continues after flow `after` unless `done`.

    `trimmed` cycles and `forgotten` index entries have been removed.
    """

    after: str
    done: bool
    trimmed: int = 0
    forgotten: int = 0


class FlowMemories(Protocol):
    """The variables that flows carry from cycle to cycle, under compare-and-set; they are deleted with their flow."""

    async def load(self, flow_id: str) -> Memory | None:
        """Return a copy of the variables of a flow, None when there is no flow, or it is being deleted."""
        ...

    async def try_save(self, flow_id: str, memory: Memory) -> UpdateResult:
        """Write variables over the previous version.

        Answers `conflict` when another version is on record, `missing` when `load` would return None.
        """
        ...


class Firings(Protocol):
    """The outcomes of the planned times of flows, written by the scripts that decide them."""

    async def newest(self, flow_id: str, before_ms: int, limit: int, backfill_id: int = 0) -> list[Firing]:
        """Return up to `limit` lines, latest planned time first, from before `before_ms` (0: from the latest).

        They are the lines of the flow, or of one backfill, which has a line for each of its times except those still to
        come.
        """
        ...

    async def waiting(self, partitions: Collection[int], limit: int) -> list[str]:
        """Return flows that have planned times waiting for a running cycle, up to `limit` of each partition."""
        ...


class Backfills(Protocol):
    """Backfills of flows. `CycleRecords.begin` begins their cycles and moves them on; a run is counted when it ends."""

    async def create(self, draft: BackfillDraft) -> tuple[BackfillOutcome, int]:
        """Put a backfill on record, under way, and return the outcome and its id.

        A request seen before is answered `repeated` with the first id, or `reused` if it has another payload; the
        answer is `full` when too many backfills of the flow are under way. The newest 100 backfills of a flow are kept,
        for 7 days after they end.
        """
        ...

    async def find(self, flow_id: str, backfill_ids: Sequence[int]) -> list[Backfill | None]:
        """Return backfills in the order asked for."""
        ...

    async def ids(self, flow_id: str) -> list[int]:
        """Return the ids of a flow's backfills, the newest first."""
        ...

    async def active(self, partitions: Collection[int], limit: int) -> list[tuple[str, int]]:
        """Return backfills that are under way, as flow and id, up to `limit` of each partition, oldest first."""
        ...

    async def cancel(self, flow_id: str, backfill_id: int, reason: str) -> bool:
        """Begin no more cycles of a backfill, and say whether it was under way.

        Running cycles go on; the planned times left are put on record as dropped.
        """
        ...
