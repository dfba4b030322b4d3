"""Having work done by whichever replica owns a partition."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Work(StrEnum):
    """What the owner of a partition does when it is told to, and looks for now and then in case nobody told."""

    RUNS = "runs"
    """Open runs to look after."""
    WAITING = "waiting"
    """Cycles that wait, of queues and backfills."""
    JOBS = "jobs"
    """Bulk jobs to carry out."""
    OUTBOX = "outbox"
    """Schedules that the trigger service must hear of."""
    ENDS = "ends"
    """Ends of cycles that are to be told."""
    RETURNS = "returns"
    """Ends of cycles that nodes of other flows wait for."""
    SHARES = "shares"
    """Partitions to be shared anew; everybody's work."""


class WakeOwner(Protocol):
    """Has the owner of the partition that `key`, a flow's or a job's id, is in look for work in at most so many ms."""

    def __call__(self, work: Work, key: str, in_ms: int) -> None: ...


EVERY = -1


@dataclass(frozen=True, slots=True)
class WakeUp:
    """There is work in a partition, or in EVERY one, in so many ms."""

    work: Work
    partition: int
    in_ms: int


class WakeChannel(Protocol):
    """Tells every replica what any of them found to be done; may lose messages, so that nobody relies on it alone."""

    async def tell(self, wake_up: WakeUp) -> None:
        """Tell it to all that listen."""
        ...

    async def listen(self, hear: Callable[[WakeUp], None], missed: Callable[[], None]) -> Callable[[], None]:
        """Call `hear` with each message from now on, and `missed` when some may have been lost.

        Returns what ends it.
        """
        ...
