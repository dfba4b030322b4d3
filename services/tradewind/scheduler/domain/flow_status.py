"""Where a flow stands, and where it may go from there."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class FlowStatus(StrEnum):
    """`deleting` is internal: the flow answers only DeleteFlow, and its record vanishes in the end."""

    REGISTERED = "registered"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    COMPLETED = "completed"
    FAILED = "failed"
    DELETING = "deleting"


_S = FlowStatus

MOVES: Mapping[FlowStatus, frozenset[FlowStatus]] = MappingProxyType(
    {
        _S.REGISTERED: frozenset({_S.RUNNING, _S.STOPPED, _S.DELETING}),
        _S.RUNNING: frozenset({_S.PAUSED, _S.STOPPED, _S.COMPLETED, _S.FAILED, _S.DELETING}),
        # A pause lets the running cycle finish; that ends a flow that runs once.
        _S.PAUSED: frozenset({_S.RUNNING, _S.STOPPED, _S.COMPLETED, _S.FAILED, _S.DELETING}),
        _S.STOPPED: frozenset({_S.RUNNING, _S.DELETING}),
        # Started again, it runs its one cycle again.
        _S.COMPLETED: frozenset({_S.RUNNING, _S.STOPPED, _S.DELETING}),
        _S.FAILED: frozenset({_S.RUNNING, _S.STOPPED, _S.DELETING}),
        _S.DELETING: frozenset(),
    }
)
"""Every allowed move. Staying is not a move: starting a running flow, for example, changes nothing and is allowed."""


def can_move(current: FlowStatus, wanted: FlowStatus) -> bool:
    """Say whether a flow may go from one status to another."""
    return wanted in MOVES[current]
