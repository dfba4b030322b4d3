"""What the doctor needs from the store of a partition."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from tradewind.scheduler.domain.run_name import RunName
from tradewind.server.doctor import Examined


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """The findings of a step in the store, and what other services must know: running flows and submitted runs.

    `running` has, for each flow, its id, its schedule epoch, and how many ms ago its next planned time was, 0 for a
    flow that begins on events.
    """

    examined: Examined
    running: tuple[tuple[str, int, int], ...]
    submitted: tuple[RunName, ...]


class PartitionDoctor(Protocol):
    """Looks through the store of a partition."""

    async def examine(
        self, partition: int, epoch: int, at: str, records: int, recheck: Collection[str] | None, mend: bool
    ) -> PartitionReport:
        """Take a step, as Examiner says; with the epoch of a former owner, it finds nothing and is the last."""
        ...
