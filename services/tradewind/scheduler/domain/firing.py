"""What became of the planned times of a flow, a line for each."""

from dataclasses import dataclass
from enum import StrEnum


class FiringOutcome(StrEnum):
    """What became of a planned time."""

    FIRED = "fired"
    """A cycle began."""
    SKIPPED = "skipped"
    """None began, as one was running or the flow was paused."""
    QUEUED = "queued"
    """A cycle begins when the one before has ended."""
    MISSED = "missed"
    """It was found due too late."""
    DROPPED = "dropped"
    """It was queued, or would have been, and gave way."""


@dataclass(frozen=True, slots=True)
class Firing:
    """A planned time and what became of it at `at_ms`, or `count` of them up to `last_ms` that fared alike.

    `cycle` is -1 where none began.
    """

    planned_ms: int
    outcome: FiringOutcome
    cycle: int
    run: int
    run_id: str
    at_ms: int
    count: int
    last_ms: int
    reason: str

    def to_line(self) -> str:
        """Return it as text."""
        return (
            f"{self.planned_ms} {self.outcome.value} {self.cycle} {self.run} {self.run_id or '-'} "
            f"{self.at_ms} {self.count} {self.last_ms} {self.reason}"
        )

    @classmethod
    def from_line(cls, line: str) -> "Firing":
        """Return what `to_line` wrote."""
        planned, outcome, cycle, run, run_id, at, count, last, reason = line.split(" ", 8)
        return cls(
            int(planned),
            FiringOutcome(outcome),
            int(cycle),
            int(run),
            "" if run_id == "-" else run_id,
            int(at),
            int(count),
            int(last),
            reason,
        )
