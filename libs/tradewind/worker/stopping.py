"""Why a node is asked to stop, and the exception that tells it."""

import asyncio
import enum
from dataclasses import dataclass


class NodeStopExecution(asyncio.CancelledError):
    """The node is to stop now: let it pass, after cleaning up.

    Raised in async nodes where they wait, and by `Context.check_stop`. It is a CancelledError, so `asyncio.timeout`,
    `except Exception`, and from Python 3.13 on `asyncio.TaskGroup` treat it as the cancellation it is. A node that
    raises it by itself ends as terminated, with that reason.
    """

    def __init__(self, reason: str = "", source: str = "") -> None:
        super().__init__(f"{reason} (by {source})" if source else reason)
        self.reason = reason
        """In words."""
        self.source = source
        """Who asked: a user, "scheduler" or "system"."""


NodeStopExecutionException = NodeStopExecution
"""The name that the specification gives it."""


class StopKind(enum.Enum):
    """What is reported of a node that was stopped."""

    TERMINATED = enum.auto()
    """Somebody asked for it: terminated."""
    TIMED_OUT = enum.auto()
    """Its deadline has passed: failed with TIMEOUT."""
    LEASE_LOST = enum.auto()
    """Another attempt has its lease: nothing is reported, it would be refused."""
    GIVEN_BACK = enum.auto()
    """The worker leaves: its token is given back, so that it runs elsewhere."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A request to stop."""

    kind: StopKind
    reason: str
    source: str = "system"

    def exception(self) -> NodeStopExecution:
        """Return a new exception that tells the node."""
        return NodeStopExecution(self.reason, self.source)
