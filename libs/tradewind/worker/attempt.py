"""One attempt of a node task in this process, and where it reports to."""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.worker.outputs import Ending
from tradewind.worker.stopping import Stop

if TYPE_CHECKING:
    from tradewind.worker.memory import Memories


class Telling(Protocol):
    """Takes what a node tells while it runs, by token. Any thread may call it."""

    def progress(self, token: str, percent: int, message: str, step: str) -> None:
        """The node is so far; a later call replaces one that was not sent yet."""
        ...

    def log(self, token: str, level: str, message: str, created_ns: int) -> None:
        """The node wrote a line at `created_ns` since the epoch."""
        ...


class Reports(Telling, Protocol):
    """Takes what is to be said of attempts, by token. Beside what nodes tell, that is the loop's thread's."""

    def complete(
        self, token: str, outputs: Ending, duration_ns: int, traceparent: str = "", eager_token: str = ""
    ) -> None:
        """The node ran, in the span that `traceparent` names, and emits `outputs`; an eager one goes on with them."""
        ...

    def fail(self, failure: work_pb2.NodeTaskFailure) -> None:
        """The node failed or was stopped."""
        ...

    def give_back(self, token: str) -> None:
        """The attempt did not begin, or may run elsewhere."""
        ...


class Stoppable(Protocol):
    """A process in which an attempt runs."""

    def tell(self, token: str, stop: Stop) -> None:
        """Let the node know that it is to stop."""
        ...

    def force(self) -> None:
        """End the process: SIGTERM now, SIGKILL a moment later. The attempt ends with it."""
        ...


class Attempt:
    """What the executor, the node's context and the stream know of an attempt while it is held."""

    __slots__ = (
        "assignment",
        "begun_ns",
        "deadline",
        "following",
        "highest",
        "in_thread",
        "memories",
        "named",
        "process",
        "redact",
        "reports",
        "said",
        "settled",
        "step",
        "steps",
        "stop",
        "stop_seen",
        "task",
        "timer",
        "token",
        "traceparent",
    )

    def __init__(
        self, assignment: work_pb2.NodeTaskAssignment, reports: Telling, steps: Sequence[work_pb2.EagerStep] = ()
    ) -> None:
        self.assignment = assignment
        self.token = assignment.token
        self.traceparent = assignment.traceparent
        """The trace context that it runs in; empty for none."""
        self.reports = reports
        self.memories: Memories | None = None
        """Where the variables of its cycle and flow are kept."""
        self.process: Stoppable | None = None
        """Where it runs, while it runs in a process of its own."""
        self.in_thread = False
        """Whether a plain function has begun, which learns of a stop when it looks."""
        self.task: asyncio.Task[Any] | None = None
        self.deadline = math.inf
        """When it times out, by the loop's clock; infinite for never."""
        self.begun_ns = 0
        """On the performance counter; 0 before the node's code was reached."""
        self.stop: Stop | None = None
        self.stop_seen = False
        """Whether the node's code came to know of the stop."""
        self.steps = steps
        """What may go on with what it emits, and with what that emits, and so on."""
        self.following: Attempt | None = None
        """The attempt of an eager node that goes on with what this one emits."""
        self.settled = False
        """Whether its outcome is decided: what the code does from here on is not reported."""
        self.named = False
        """Whether the server has been told that this worker holds it."""
        self.redact: Callable[[str], str] | None = None
        """Takes secrets out of texts; None when the config has none."""
        self.highest = 0
        """The highest progress so far."""
        self.said = ""
        """What was said with the latest progress."""
        self.step = ""
        """Which step the node was at last."""
        self.timer: asyncio.TimerHandle | None = None

    def redacted(self, text: str) -> str:
        """Return `text` without the values of this attempt's secrets."""
        return text if self.redact is None else self.redact(text)

    def duration_ns(self) -> int:
        """Return the time since the node's code was reached."""
        return time.perf_counter_ns() - self.begun_ns if self.begun_ns else 0
