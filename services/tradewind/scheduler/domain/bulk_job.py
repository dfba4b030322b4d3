"""Bulk jobs: one action applied to many cycles, bit by bit."""

from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase

from tradewind.scheduler.domain.cycle_outline import CycleOutline
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.run_name import RunName

MAX_ITEMS = 100
"""The most cycles that a job names."""


class BulkAction(StrEnum):
    """The action that a job applies to each cycle."""

    RERUN = "rerun"
    STOP = "stop"


class BulkStatus(StrEnum):
    """Where a job stands; all but `running` are final."""

    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


DEFAULT_STATUSES = {
    BulkAction.RERUN: (CycleStatus.FAILED, CycleStatus.PARTIAL, CycleStatus.TIMEOUT),
    BulkAction.STOP: (CycleStatus.RUNNING,),
}


@dataclass(frozen=True, slots=True)
class BulkFilter:
    """Selects cycles by their latest runs: flow id or pattern, status, and range of start times (epoch ms)."""

    flow_ids: tuple[str, ...]
    statuses: tuple[CycleStatus, ...]
    started_after_ms: int
    started_before_ms: int
    limit: int

    @property
    def exact_flow_ids(self) -> tuple[str, ...] | None:
        """The flow ids, sorted, when none of them is a pattern; else None."""
        if any(set(each) & set("*?") for each in self.flow_ids):
            return None
        return tuple(sorted(set(self.flow_ids)))

    def matches_flow(self, flow_id: str) -> bool:
        """Say whether the filter selects cycles of a flow."""
        # Of the characters that are special to fnmatch, a bracket is not special here.
        return any(fnmatchcase(flow_id, pattern.replace("[", "[[]")) for pattern in self.flow_ids)

    def matches(self, latest: CycleOutline) -> bool:
        """Say whether the filter selects the cycle that has this latest run; the flow is not checked."""
        return latest.status in self.statuses and self.started_after_ms <= latest.start_ms < self.started_before_ms


@dataclass(frozen=True, slots=True)
class BulkItem:
    """A cycle that a job met, and why the action failed on it, if it did."""

    flow_id: str
    cycle: int
    run: int
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class BulkJob:
    """A job at `version`, which the store raises with each write; times in epoch ms.

    A job goes through flows in order of id, and through the cycles of each flow from the newest back. `flow_id` is the
    flow that it has reached, and (`cycle`, `run`) the run of that flow that it examined last, (-1, 0) for none. With
    `through`, it is done with that flow.
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
        """The name under which this job acts."""
        return f"{self.by} ({self.job_id})"

    @property
    def full(self) -> bool:
        """Whether the job has met as many cycles as it may."""
        return self.matched >= self.filter.limit

    def with_match(self, run: RunName, error: tuple[str, str] | None) -> "BulkJob":
        """Return the job after a cycle that its filter selects; `error` is why the action failed: name and text."""
        item = BulkItem(*run, *(error or ("", "")))
        listed = (self.dry_run or error is not None) and len(self.items) < MAX_ITEMS
        return replace(
            self,
            matched=self.matched + 1,
            done=self.done + (error is None and not self.dry_run),
            failed=self.failed + (error is not None),
            items=(*self.items, item) if listed else self.items,
        )

    def moved_to(self, run: RunName) -> "BulkJob":
        """Return the job after it has examined a run."""
        return replace(self, flow_id=run.flow_id, cycle=run.cycle, run=run.run, through=False)

    def ended(self, status: BulkStatus, at_ms: int) -> "BulkJob":
        """Return the job, ended with a status."""
        return replace(self, status=status, ended_ms=at_ms)
