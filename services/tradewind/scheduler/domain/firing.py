"""The outcomes of a flow's planned times and events."""

from dataclasses import dataclass
from enum import StrEnum


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
