"""Where a run of a cycle stands, and where it may go from there."""

from collections.abc import Collection, Mapping
from enum import StrEnum
from types import MappingProxyType


class CycleStatus(StrEnum):
    """All but `running` are terminal: a rerun is a run of its own, with its own status."""

    RUNNING = "running"
    COMPLETED = "completed"
    PARTIAL = "partial"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"


_S = CycleStatus

MOVES: Mapping[CycleStatus, frozenset[CycleStatus]] = MappingProxyType(
    {
        _S.RUNNING: frozenset({_S.COMPLETED, _S.PARTIAL, _S.FAILED, _S.TIMEOUT, _S.CANCELLED}),
        _S.COMPLETED: frozenset(),
        _S.PARTIAL: frozenset(),
        _S.FAILED: frozenset(),
        _S.TIMEOUT: frozenset(),
        _S.CANCELLED: frozenset(),
    }
)
"""Every allowed move. Terminal is terminal, whatever arrives late."""


def are_open(statuses: Collection[CycleStatus]) -> bool:
    """Say whether only runs that have not ended have one of these statuses; empty means any status."""
    return bool(statuses) and not any(map(is_terminal, statuses))


def is_terminal(status: CycleStatus) -> bool:
    """Say whether a run of a cycle never leaves this status."""
    return not MOVES[status]
