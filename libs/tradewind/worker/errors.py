"""What can go wrong with a worker, and with the nodes that it runs.

WorkerError                 for whoever starts a worker
+-- NodeDefinitionError     a function cannot be a node as it is declared
+-- NodeLoadError           a module with nodes could not be loaded
+-- WorkerRefused           a server refuses this worker, however often it asks
    +-- SessionReplaced     another process uses the same worker id

RetryLater                  raised by a node: try again after a given time
Fatal                       raised by a node: never try again
MemoryFault                 variables of a cycle or a flow could not be read or changed
NodeFault                   internal: an attempt failed, with the code that is reported
"""

import math
from datetime import timedelta

from tradewind.flow.values import Duration, seconds_in

LONGEST_WAIT = timedelta(days=365)


class WorkerError(Exception):
    """A worker cannot be started or cannot go on; the message says what to do."""


class NodeDefinitionError(WorkerError):
    """A function cannot be a node as it is declared."""


class NodeLoadError(WorkerError):
    """A module with nodes or a flow could not be loaded, or does not hold them."""


class WorkerRefused(WorkerError):
    """A server refuses this worker for a reason that trying again does not change."""


class SessionReplaced(WorkerRefused):
    """Another process has opened a stream under this worker's id."""


class RetryLater(Exception):
    """Raise it in a node that fails only for now: its next attempt, if it may have one, begins after `after`.

    `after` is seconds, text such as "5s" or "1h", or a timedelta, from 0 to 365 days; `message` says why. Raises
    ValueError for other times.
    """

    def __init__(self, after: Duration, message: str = "") -> None:
        try:
            seconds = seconds_in(after)
        except (TypeError, ValueError):
            seconds = math.nan
        if not 0 <= seconds <= LONGEST_WAIT.total_seconds():  # NaN is outside, too
            raise ValueError(f'RetryLater({after!r}): give seconds, "5s" or a timedelta from 0 to 365 days')
        self.after = timedelta(seconds=seconds)
        super().__init__(message or f"try again after {self.after.total_seconds():g} s")

    def __reduce__(self) -> tuple[type["RetryLater"], tuple[timedelta, str]]:
        return RetryLater, (self.after, str(self))


class Fatal(Exception):
    """Raise it in a node that would fail however often it is tried: no attempt follows, even if some are left."""


class MemoryFault(Exception):
    """Variables of a cycle or a flow could not be read or changed.

    `reason` is a name in `ErrorReason` of the contract: TOO_LARGE, WRONG_STATUS (the cycle has ended),
    FLOW_NOT_FOUND, UNAVAILABLE, ...
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    def __reduce__(self) -> tuple[type["MemoryFault"], tuple[str, str]]:
        return MemoryFault, (self.reason, str(self))

    @classmethod
    def too_large(cls, size: int) -> "MemoryFault":
        """Return the fault for a change that is longer than any message."""
        return cls("TOO_LARGE", f"a change of {size} bytes: keep the data elsewhere, and its place here")


class NodeFault(Exception):
    """An attempt failed for a reason other than an exception of the node's own code in this process.

    `code` is one of those listed at `NodeTaskError` in the contract; `type` is reported as the exception's type.
    `retry_after`, in seconds, and `non_retryable` are the node's wishes for a further attempt.
    """

    def __init__(
        self,
        code: str,
        message: str,
        type: str = "",
        *,
        traceback: str = "",
        retry_after: float | None = None,
        non_retryable: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.type = type
        self.traceback = traceback
        self.retry_after = retry_after
        self.non_retryable = non_retryable


def invalid_input(message: str) -> NodeFault:
    """Return the fault for a value that does not fit the node's parameter, or for an unknown parameter.

    It is final, because the next attempt would get the same input.
    """
    return NodeFault("NODE_ERROR", message, type="InvalidInput", non_retryable=True)
