"""Cycles on record: their beginning and their state."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tradewind.scheduler.domain.beginning import BeginAnswer, BeginRequest, RerunRequest
from tradewind.scheduler.domain.chain_state import ChainState, UpdateResult
from tradewind.scheduler.domain.cycle_outline import CycleOutline
from tradewind.scheduler.domain.flow_record import RememberedRequest
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.run_update import RunUpdate
from tradewind.scheduler.ports.owning import NOT_OWNER, Epochs


@dataclass(frozen=True, slots=True)
class Tidied:
    """How far tidying has come: it continues after flow `after` unless `done`.

    `trimmed` cycles and `forgotten` index entries have been removed.
    """

    after: str
    done: bool
    trimmed: int = 0
    forgotten: int = 0


class CycleRecords(Protocol):
    """Cycles: beginning and reading them."""

    async def begin(self, requests: Sequence[BeginRequest], epochs: Epochs = NOT_OWNER) -> list[BeginAnswer]:
        """Begin cycles, each judged by itself, those of a partition in order; one round trip for all.

        Checks, in this order: the flow exists and is not being deleted; the request has not been seen before; a
        scheduled request carries the current schedule epoch, its flow is running, and its planned time has not been
        answered before; the revision is current; unless overlap is `allow`, no cycle is open.

        For a scheduled request the store notes which times were missed and what is planned next. When a cycle is open
        or an earlier planned time waits, it settles the planned time by the flow's overlap policy and answers
        `settled`. Otherwise it allocates the number after the latest, never one in use, and puts the run on record at
        version 1, among the open runs. A flow whose schedule has nothing left completes.

        A run that replaces another is asked to stop if the other one was.
        """
        ...

    async def begin_rerun(self, request: RerunRequest) -> BeginAnswer:
        """Begin a further run of a cycle: at version 1, among the open runs, with the revision of the previous run.

        Checks that the flow exists and is not being deleted, that the request has not been seen before, and that the
        previous run has ended and is the latest of its cycle. Overlap policies do not apply: a rerun neither waits for
        other cycles nor stands in their way.
        """
        ...

    async def first_answer(self, request: RememberedRequest) -> BeginAnswer | None:
        """Return `duplicate` or `reused` for a request that was answered before, else None."""
        ...

    async def tidy(self, partition: int, after: str, epoch: int) -> Tidied:
        """Remove ended cycles beyond the number that their flows keep now, and index entries of expired cycles.

        Does so for some flows after `after` ("" for the first) in order of id, and for none when a later owner has the
        partition.
        """
        ...

    async def begun_flows(self, flow_ids: Sequence[str]) -> list[str]:
        """Return these flows, in the same order, without those that certainly have no cycle on record."""
        ...

    async def newest(self, flow_id: str, below: RunName | None, limit: int) -> list[ChainState]:
        """Return up to `limit` runs on record, newest first, beginning below `below` (None: with the newest).

        Raises Unreadable when the index of the flow's cycles is of another type.
        """
        ...

    async def outlines(self, flow_id: str, below: RunName | None, limit: int) -> list[CycleOutline]:
        """Return what up to `limit` runs on record are chosen by: those, and in the order, that `newest` returns."""
        ...

    async def newest_open(self, flow_id: str, below: RunName) -> RunName | None:
        """Return the newest run below `below` that has not ended, None if there is none."""
        ...

    async def latest_run(self, flow_id: str, cycle: int) -> RunName | None:
        """Return the latest run of a cycle, None if the cycle has not begun or has been trimmed."""
        ...


class ChainStateRepository(Protocol):
    """Chain states under compare-and-set. `CycleRecords.begin` is the first write of each, over version 0.

    Nothing here creates a record, so a late write cannot bring back what DeleteFlow has removed.
    """

    async def load(self, run: RunName) -> ChainState | None:
        """Return a copy of the state on record, None when there is none. Raises Unreadable."""
        ...

    async def load_many(self, runs: Sequence[RunName]) -> list[ChainState | None]:
        """Return states in the order asked for, None also for one that cannot be read: the others must not suffer."""
        ...

    async def update_many(self, updates: Sequence[RunUpdate], epochs: Epochs = NOT_OWNER) -> list[UpdateResult]:
        """Do many updates, each by itself; one round trip for all.

        Each writes `fields` of a state over the version that it carries; the store raises the version. The answer is
        `conflict` when the record has another version, `missing` when there is no record with this run_id, `terminal`
        when the run has ended, `unreadable` when the flow, or a part of it, is.

        A terminal status ends the run: it leaves the open runs, its end time is set, and its records expire. That also
        trims the flow's oldest ended cycles beyond keep_cycles. It ends the flow if the schedule is over and nothing
        else of the flow is open, and pauses the flow if too many cycles have failed in a row.
        """
        ...
