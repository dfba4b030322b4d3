"""Counts of node tasks by status."""

from dataclasses import asdict, dataclass, fields


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """One count for each status of a node task."""

    registered: int = 0
    pending: int = 0
    running: int = 0
    completed: int = 0
    failed: int = 0
    terminated: int = 0
    skipped: int = 0
    suspended: int = 0

    @property
    def total(self) -> int:
        """The number of all node tasks."""
        return sum(asdict(self).values())

    def __add__(self, other: "NodeCounts") -> "NodeCounts":
        return NodeCounts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))
