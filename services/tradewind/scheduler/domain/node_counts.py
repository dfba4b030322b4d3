"""Counts of node tasks by status."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

from tradewind.scheduler.domain.node_status import NodeStatus


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

    @classmethod
    def of(cls, statuses: Iterable[str]) -> "NodeCounts":
        """Count status words, `error` as `failed`. Raises ValueError for a word that is not a status."""
        counts = Counter(NodeStatus(word) for word in statuses)
        return cls(**{status.value: count for status, count in counts.items()})

    @property
    def total(self) -> int:
        """The number of all node tasks."""
        return sum(asdict(self).values())

    @property
    def open(self) -> int:
        """The number of node tasks that are not terminal."""
        return self.registered + self.pending + self.running + self.suspended

    def __add__(self, other: "NodeCounts") -> "NodeCounts":
        return NodeCounts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))
