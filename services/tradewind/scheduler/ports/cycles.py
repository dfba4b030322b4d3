"""Cycles on record: their beginning, their state, their log lines."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from tradewind.scheduler.domain.beginning import BeginAnswer, BeginRequest, RerunRequest
from tradewind.scheduler.domain.chain_state import ChainState, UpdateResult
from tradewind.scheduler.domain.flow_record import (
    RememberedRequest,
)
from tradewind.scheduler.domain.log_line import LogLine
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.run_update import RunUpdate
from tradewind.scheduler.ports.flows import DueCheck, Tidied
from tradewind.scheduler.ports.owning import NOT_OWNER, Epochs


class CycleRecords(Protocol):
    """Cycles: beginning and reading them."""

    async def begin(self, requests: Sequence[BeginRequest], epochs: Epochs = NOT_OWNER) -> list[BeginAnswer]:
        """Begin cycles, each judged by itself, those of a partition in order; one round trip for all.

        Checks, in this order: the flow is there and not being deleted; the request was not seen before; a scheduled one
        carries a current schedule epoch, its flow is running, and its planned time was not answered before; the
        revision is current; unless overlap is `allow` no cycle is open. For a scheduled one the store notes what was
        missed and what is planned next, and, when a cycle is open or an earlier planned time waits, what becomes of the
        planned time by the flow's overlap policy: that is `settled`. Else the number after the latest is allocated,
        never one in use, and the run put on record at version 1, among the open ones. A flow of whose schedule nothing
        is left has completed.
        """
        ...

    async def begin_rerun(self, request: RerunRequest) -> BeginAnswer:
        """Begin a further run of a cycle: at version 1, among the open ones, of the revision of the run before.

        Checks that the flow is there and not being deleted, that the request was not seen before, and that the run
        before has ended and is the latest of its cycle. No overlap policy stands in its way, nor is it in anybody's.
        """
        ...

    async def first_answer(self, flow_id: str, request: RememberedRequest) -> BeginAnswer | None:
        """Return `duplicate` or `reused` for a request that was answered before, else None."""
        ...

    async def tidy(self, partition: int, after: str, epoch: int) -> Tidied:
        """Remove ended cycles beyond what their flows keep now, and index entries of expired ones.

        Does so for some flows behind `after` ("" for the first) in the order of their ids, for none when a later owner
        has the partition."""
        ...

    async def newest(self, flow_id: str, below: RunName | None, limit: int) -> list[ChainState]:
        """Return up to `limit` runs that are on record, newest first, from the one before `below`."""
        ...

    async def latest_run(self, flow_id: str, cycle: int) -> RunName | None:
        """Return the latest run of a cycle that was begun and not trimmed."""
        ...


class ChainStateRepository(Protocol):
    """Chain states under compare-and-set. `CycleRecords.begin` is the first write of each, over version 0.

    Nothing here makes a record: what DeleteFlow removed cannot come back by a late write.
    """

    async def load(self, run: RunName) -> ChainState | None:
        """Return a copy of the state on record, None when there is none."""
        ...

    async def load_many(self, runs: Sequence[RunName]) -> list[ChainState | None]:
        """Return states in the order asked for."""
        ...

    async def try_update(self, state: ChainState, fields: Collection[str]) -> UpdateResult:
        """Write `fields` of a state over the version that it carries; the store raises the version.

        `conflict` when the record has another version, `missing` when there is none of this run_id, `terminal` when it
        has ended. With a terminal status the run ends: out of the open ones, end time set, and its records expire.
        """
        ...

    async def update_many(self, updates: Sequence[RunUpdate], epochs: Epochs = NOT_OWNER) -> list[UpdateResult]:
        """Do many updates, each by itself; one round trip for all.

        A run that ends also trims its flow's oldest ended cycles beyond keep_cycles, ends a flow whose schedule is over
        when nothing else of it is open, and pauses one in which too many cycles failed in a row.
        """
        ...


class OpenRuns(Protocol):
    """Runs that have begun and not ended, by the time of their next check."""

    async def check(self, partitions: Collection[int], limit: int) -> dict[int, DueCheck[RunName]]:
        """Return, for each partition, up to `limit` runs due for a look."""
        ...

    async def postpone(self, runs: Mapping[RunName, int]) -> None:
        """Look at open runs again after so many ms; runs that have ended meanwhile are left alone."""
        ...

    async def of_flow(self, flow_id: str, limit: int) -> list[RunName]:
        """Return up to `limit` open runs of a flow."""
        ...

    async def forget(self, run: RunName) -> None:
        """Take a run out that has no record any more, or has ended; where that is on record it stays."""
        ...


class LogLines(Protocol):
    """The scheduler's own lines of cycles, but for what the records of their runs tell."""

    async def read(self, flow_id: str, cycle: int) -> list[LogLine]:
        """Return the lines of one of the newest hundred cycles, oldest first, at most 1000."""
        ...
