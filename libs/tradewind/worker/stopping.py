"""Why a node is asked to stop, and the exception that tells it so."""

import asyncio
import enum
from dataclasses import dataclass


class NodeStopExecution(asyncio.CancelledError):
    """The node must stop now: let this exception pass, after cleaning up.

    Raised in async nodes where they wait, and by `Context.check_stop`. It is a CancelledError, so `asyncio.timeout`,
    `except Exception`, and from Python 3.13 on `asyncio.TaskGroup` treat it as the cancellation it is. A node that
    raises it itself ends as terminated, with that reason.
    """

    def __init__(self, reason: str = "", source: str = "") -> None:
        super().__init__(f"{reason} (by {source})" if source else reason)
        self.reason = reason
        """Why, in words."""
        self.source = source
        """Who asked: a user, "scheduler" or "system"."""


NodeStopExecutionException = NodeStopExecution
"""The name that the specification gives it."""


class StopKind(enum.Enum):
    """What is reported about a node that was stopped."""

    TERMINATED = enum.auto()
    """Somebody asked it to stop: it is terminated."""
    TIMED_OUT = enum.auto()
    """Its deadline has passed: it failed with TIMEOUT."""
    LEASE_LOST = enum.auto()
    """Its lease is lost: nothing is reported, because a report would be refused."""
    GIVEN_BACK = enum.auto()
    """The worker is leaving: its token is given back, so that it runs elsewhere."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A request to stop."""

    kind: StopKind
    reason: str
    source: str = "system"

    def exception(self) -> NodeStopExecution:
        """Return a new exception that tells the node to stop."""
        return NodeStopExecution(self.reason, self.source)
