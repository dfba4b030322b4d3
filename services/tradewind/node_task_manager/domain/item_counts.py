"""Counts of the items of a mapped node."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ItemCounts:
    """Counts of the items of a mapped node: of `total`, `begun` have become ready, and `need` must complete.

    `cancelled` items were stopped or skipped. Items that have not begun will, unless the node is halted.
    """

    total: int
    need: int
    begun: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def ended(self) -> int:
        """How many items are final."""
        return self.completed + self.failed + self.cancelled

    @property
    def open(self) -> int:
        """How many items are ready or running."""
        return self.begun - self.ended

    @property
    def out_of_reach(self) -> bool:
        """Whether `need` items can no longer complete."""
        return self.failed + self.cancelled > self.total - self.need
