"""Gets work done by whichever replica owns a partition."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Work(StrEnum):
    """Work that the owner of a partition does when woken, and polls for now and then in case nobody woke it."""

    RUNS = "runs"
    """Open runs to look after."""
    WAITING = "waiting"
    """Cycles that wait in queues and backfills."""
    JOBS = "jobs"
    """Bulk jobs to carry out."""
    OUTBOX = "outbox"
    """Schedules that the trigger service must learn of."""
    ENDS = "ends"
    """Ends of cycles to publish."""
    RETURNS = "returns"
    """Ends of cycles that nodes of other flows wait for."""
    SHARES = "shares"
    """Partitions to share out again; every replica's work."""


class WakeOwner(Protocol):
    """Wakes the owner of the partition of `key`, the id of a flow or job, to look for work in at most `in_ms`."""

    def __call__(self, work: Work, key: str, in_ms: int) -> None: ...


EVERY = -1


@dataclass(frozen=True, slots=True)
class WakeUp:
    """There is work in a partition, or in EVERY one, in `in_ms`."""

    work: Work
    partition: int
    in_ms: int


class WakeChannel(Protocol):
    """Notifies every replica of work that any of them has found; may lose messages, so nobody relies on it alone."""

    async def publish(self, wake_up: WakeUp) -> None:
        """Send a wake-up to all listeners."""
        ...

    async def listen(self, receive: Callable[[WakeUp], None], missed: Callable[[], None]) -> Callable[[], None]:
        """Call `receive` with each message from now on, and `missed` when some may have been lost.

        The returned function ends the listening.
        """
        ...
