"""How the items of a mapped node stand."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ItemCounts:
    """How the items of a mapped node stand: of `total` so many have `begun`, that is have become ready.

    `cancelled` were stopped or skipped. Without `halt` those that have not begun will; `need` must complete.
    """

    total: int
    need: int
    begun: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def ended(self) -> int:
        """How many are final."""
        return self.completed + self.failed + self.cancelled

    @property
    def open(self) -> int:
        """How many are ready or running."""
        return self.begun - self.ended

    @property
    def out_of_reach(self) -> bool:
        """Whether so many have not completed that too few can."""
        return self.failed + self.cancelled > self.total - self.need
