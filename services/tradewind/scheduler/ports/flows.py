"""Flows on record, what their schedules made of planned times, and what is still owed to other services."""

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
        """Put a definition on record and return what became of it and the revision.

        A new revision keeps last_cycle, created_at and status; the digest on record changes nothing. A running flow
        whose schedule changed gets a higher schedule epoch and stands in the outbox. A request seen before answers
        `repeated`, or `reused` for another payload. Then a registration with an etag that is not the flow's is answered
        `moved`, or `not_found` without a flow, and changes nothing. One for the owner only is answered `not_owner` when
        the flow is another user's.

        The newest 100 revisions stay readable, the new one among them, and of the others those by which open runs go.
        """
        ...

    async def find(self, flow_ids: Sequence[str]) -> list[FlowRecord | None]:
        """Return flows in the order asked for, None where there is none."""
        ...

    async def owners(self, flow_ids: Sequence[str]) -> list[str | None]:
        """Return whose flows are, in the order asked for, None where there is none."""
        ...

    async def list_ids(self, after: str, limit: int) -> list[str]:
        """Return up to `limit` ids greater than `after`, in the order of their bytes, over all partitions."""
        ...

    async def change_status(self, change: StatusChange) -> StatusAnswer:
        """Move a flow to another status; one that is there already is left alone, but for its runs and backfills.

        A change raises the schedule epoch and puts the flow into the outbox; planned times that wait are dropped unless
        it runs on. Leaving `running` for good cancels its backfills, marks every open run as stopping, raises its
        version and makes it due for a look at once. A pause notes who, why, and what was planned next.
        """
        ...

    async def definition(self, flow_id: str, revision: int) -> str | None:
        """Return the definition of a revision that is on record, else None."""
        ...

    async def raise_schedule_epoch(self, flow_id: str) -> int:
        """Raise a flow's schedule epoch and return it; 0 when there is no flow."""
        ...

    async def remove_step(self, flow_id: str, cycles: int = 100) -> bool:
        """Remove up to `cycles` cycles of a flow that is being deleted, or with the last ones the flow.

        Returns True when nothing is left but a tombstone, which keeps later schedule epochs of this id higher.
        """
        ...


@dataclass(frozen=True, slots=True)
class DueCheck(Generic[Member]):
    """What of a partition wants a look: members due now, longest due first, and when the next one is (ms), if any."""

    due: tuple[Member, ...]
    next_ms: int | None


class Outbox(Protocol):
    """Flows whose schedule must still reach the trigger service, or that must still be removed."""

    async def check(self, partitions: Collection[int], limit: int) -> dict[int, DueCheck[str]]:
        """Return, for each partition, up to `limit` flows to be tried now."""
        ...

    async def settle(self, flow_id: str, schedule_epoch: int) -> bool:
        """Take a flow out that has this schedule epoch still; False when it has changed since."""
        ...

    async def postpone(self, flow_id: str, delay_ms: int) -> None:
        """Try a flow that is in the outbox again after `delay_ms`."""
        ...

    async def add(self, flow_id: str) -> None:
        """Have the trigger service told again what a flow's record says."""
        ...


@dataclass(frozen=True, slots=True)
class Tidied:
    """How far tidying is: go on after flow `after` unless it is `done`; how many cycles and entries of indexes went."""

    after: str
    done: bool
    trimmed: int = 0
    forgotten: int = 0


class FlowMemories(Protocol):
    """The variables that flows carry from cycle to cycle, under compare-and-set; they go with their flow."""

    async def load(self, flow_id: str) -> Memory | None:
        """Return a copy of the variables of a flow, None when there is no flow, or it is being deleted."""
        ...

    async def try_save(self, flow_id: str, memory: Memory) -> UpdateResult:
        """Write variables over those one version before; `conflict` when others are on record, `missing` as above."""
        ...


class Firings(Protocol):
    """What became of the planned times of flows; written by the scripts that decide it."""

    async def newest(self, flow_id: str, before_ms: int, limit: int, backfill_id: int = 0) -> list[Firing]:
        """Return up to `limit` lines, the latest planned time first, from before `before_ms` (0: the latest).

        Those of the flow, or of one backfill, which keeps a line for each of its times but those it begins next.
        """
        ...

    async def waiting(self, partitions: Collection[int], limit: int) -> list[str]:
        """Return flows with planned times that wait for a running cycle, up to `limit` of each partition."""
        ...


class Backfills(Protocol):
    """Backfills of flows. `CycleRecords.begin` begins their cycles and moves them on, the end of a run counts it."""

    async def create(self, draft: BackfillDraft) -> tuple[BackfillOutcome, int]:
        """Put a backfill on record, under way, and return what became of that, and its id.

        A request seen before answers `repeated` with the first id, or `reused` for another payload; `full` when too
        many of the flow are under way. The newest 100 of a flow are kept, 7 days from their end.
        """
        ...

    async def find(self, flow_id: str, backfill_ids: Sequence[int]) -> list[Backfill | None]:
        """Return backfills in the order asked for."""
        ...

    async def ids(self, flow_id: str) -> list[int]:
        """Return the ids of a flow's backfills, the newest first."""
        ...

    async def active(self, partitions: Collection[int], limit: int) -> list[tuple[str, int]]:
        """Return backfills that are under way, as flow and id, up to `limit` of each partition, the oldest first."""
        ...

    async def cancel(self, flow_id: str, backfill_id: int, reason: str) -> bool:
        """Begin no more of a backfill that is under way, and say whether it was.

        What runs goes on; the times that were left are on record as dropped.
        """
        ...
