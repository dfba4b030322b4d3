"""What became of the planned times of a flow, and of events, a line for each."""

from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote, unquote


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

    `cycle` is -1 where none began, `event_id` the id of the event where it was for one.
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
    event_id: str = ""

    @classmethod
    def from_line(cls, line: str) -> "Firing":
        """Return what a line of the ledger tells, as the scripts write it."""
        planned, outcome, cycle, run, run_id, at, count, last, reason = line.split(" ", 8)
        last, _, event = last.partition("@")
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
            unquote(event),
        )


def event_mark(event_id: str) -> str:
    """Return what stands in a line behind the last planned time, without spaces: the event's id; "" without one."""
    return f"@{quote(event_id)}" if event_id else ""
