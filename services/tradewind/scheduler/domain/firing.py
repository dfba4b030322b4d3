"""The outcomes of a flow's planned times and events, one line for each."""

from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote, unquote


class FiringOutcome(StrEnum):
    """The outcome of a planned time."""

    FIRED = "fired"
    """A cycle began."""
    SKIPPED = "skipped"
    """No cycle began, because another was running or the flow was paused."""
    QUEUED = "queued"
    """A cycle begins when the previous cycle has ended."""
    MISSED = "missed"
    """It was found due too late."""
    DROPPED = "dropped"
    """It was queued, or would have been, and gave way."""


@dataclass(frozen=True, slots=True)
class Firing:
    """A planned time and its outcome at `at_ms`, or `count` planned times up to `last_ms` with the same outcome.

    `cycle` is -1 if no cycle began, `event_id` is the id of the event if there was one.
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
        """Return the firing in a line of the ledger, as the scripts write it."""
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
    """Return the event's id as it follows the last planned time in a line, without spaces; "" for no event."""
    return f"@{quote(event_id)}" if event_id else ""
