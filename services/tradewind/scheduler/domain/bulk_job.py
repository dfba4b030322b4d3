"""Bulk jobs: the same done to many cycles, bit by bit."""

from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase

from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.run_name import RunName

MOST_ITEMS = 100
"""So many cycles are named."""


class BulkAction(StrEnum):
    """What is done to each cycle."""

    RERUN = "rerun"
    STOP = "stop"


class BulkStatus(StrEnum):
    """Where a job stands; all but running are final."""

    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


DEFAULT_STATUSES = {
    BulkAction.RERUN: (CycleStatus.FAILED, CycleStatus.PARTIAL, CycleStatus.TIMEOUT),
    BulkAction.STOP: (CycleStatus.RUNNING,),
}


@dataclass(frozen=True, slots=True)
class BulkFilter:
    """Cycles by their latest runs: of flows by id or pattern, in these statuses, started in a time (epoch ms)."""

    flow_ids: tuple[str, ...]
    statuses: tuple[CycleStatus, ...]
    started_after_ms: int
    started_before_ms: int
    limit: int

    @property
    def named(self) -> tuple[str, ...] | None:
        """The flows, in order, when there are no patterns among them; else None."""
        if any(set(each) & set("*?[") for each in self.flow_ids):
            return None
        return tuple(sorted(set(self.flow_ids)))

    def takes_flow(self, flow_id: str) -> bool:
        """Say whether cycles of a flow are meant."""
        return any(fnmatchcase(flow_id, pattern) for pattern in self.flow_ids)

    def takes(self, state: ChainState) -> bool:
        """Say whether a cycle is meant, whose latest run this is."""
        start_ms = state.facts.start_ms
        return state.status in self.statuses and self.started_after_ms <= start_ms < self.started_before_ms


@dataclass(frozen=True, slots=True)
class BulkItem:
    """A cycle that a job met, and why it could not be done to it, if so."""

    flow_id: str
    cycle: int
    run: int
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class BulkJob:
    """A job at `version`, which the store raises with each write; times in epoch ms.

    It goes through flows by id and through the cycles of each from the newest on: `flow_id` is where it is, and
    (`cycle`, `run`) the run that it looked at last, (-1, 0) for none of this flow, which is done when it is `through`.
    """

    job_id: str
    action: BulkAction
    filter: BulkFilter
    dry_run: bool
    by: str
    reason: str
    created_ms: int
    version: int = 1
    status: BulkStatus = BulkStatus.RUNNING
    ended_ms: int = 0
    matched: int = 0
    done: int = 0
    failed: int = 0
    items: tuple[BulkItem, ...] = ()
    flow_id: str = ""
    cycle: int = -1
    run: int = 0
    through: bool = True

    @property
    def signature(self) -> str:
        """Who is said to have done what this job does."""
        return f"{self.by} ({self.job_id})"

    @property
    def full(self) -> bool:
        """Whether it has met as many cycles as it may."""
        return self.matched >= self.filter.limit

    def met(self, state: ChainState, error: tuple[str, str] | None) -> "BulkJob":
        """Return it after a cycle that its filter met; `error` is why it could not be done, as name and words."""
        item = BulkItem(*state.name, *(error or ("", "")))
        named = (self.dry_run or error is not None) and len(self.items) < MOST_ITEMS
        return replace(
            self,
            matched=self.matched + 1,
            done=self.done + (error is None and not self.dry_run),
            failed=self.failed + (error is not None),
            items=(*self.items, item) if named else self.items,
        )

    def at(self, run: RunName) -> "BulkJob":
        """Return it having looked at a run."""
        return replace(self, flow_id=run.flow_id, cycle=run.cycle, run=run.run, through=False)

    def ended(self, status: BulkStatus, at_ms: int) -> "BulkJob":
        """Return it ended."""
        return replace(self, status=status, ended_ms=at_ms)
