"""Where a node task stands, and where it may go from there."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class NodeStatus(StrEnum):
    """The status of a node task, as the node task manager reports it."""

    REGISTERED = "registered"
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    TERMINATED = "terminated"
    SKIPPED = "skipped"
    SUSPENDED = "suspended"


_S = NodeStatus

MOVES: Mapping[NodeStatus, frozenset[NodeStatus]] = MappingProxyType(
    {
        # Straight to an end from here and from pending: a worker delivers a result that the store lost with its host.
        _S.REGISTERED: frozenset({_S.PENDING, _S.SUSPENDED, _S.COMPLETED, _S.FAILED, _S.SKIPPED}),
        _S.PENDING: frozenset({_S.RUNNING, _S.COMPLETED, _S.FAILED, _S.SKIPPED}),
        # Back to pending: the task was given back, its lease lapsed, or it is to be tried again.
        _S.RUNNING: frozenset({_S.PENDING, _S.SUSPENDED, _S.COMPLETED, _S.FAILED, _S.TERMINATED}),
        _S.SUSPENDED: frozenset({_S.PENDING, _S.COMPLETED, _S.FAILED, _S.TERMINATED}),
        _S.COMPLETED: frozenset(),
        _S.FAILED: frozenset(),
        _S.TERMINATED: frozenset(),
        _S.SKIPPED: frozenset(),
    }
)
"""Every allowed move. A task that never ran is skipped; one stopped while it ran or waited is terminated."""


def is_terminal(status: NodeStatus) -> bool:
    """Say whether a node task never leaves this status."""
    return not MOVES[status]
