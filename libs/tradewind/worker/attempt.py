"""One attempt of a node task in this process, and where it reports."""

import asyncio
import math
import time
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.worker.forking import fork_count
from tradewind.worker.outputs import Ending
from tradewind.worker.stopping import Stop

if TYPE_CHECKING:
    from tradewind.worker.memory import Memories
    from tradewind.worker.secrets import Redactor


class NodeReports(Protocol):
    """Takes what a node reports while it runs, by token. Any thread may call it."""

    def progress(self, token: str, percent: int, message: str, step: str) -> None:
        """Note the node's progress; a later call replaces one that was not sent yet."""
        ...

    def log(self, token: str, level: str, message: str, created_ns: int) -> None:
        """Note a line that the node wrote at `created_ns` since the epoch."""
        ...


class Reports(NodeReports, Protocol):
    """Takes reports on attempts, by token. Apart from `progress` and `log`, only the loop's thread may call it."""

    def complete(
        self, token: str, ending: Ending, duration_ns: int, traceparent: str = "", eager_token: str = ""
    ) -> None:
        """Report how the node returned, in the span `traceparent`.

        `eager_token` is that of an eager node that goes on with its outputs.
        """
        ...

    def fail(self, failure: work_pb2.NodeTaskFailure) -> None:
        """Report that the node failed or was stopped."""
        ...

    def give_back(self, token: str) -> None:
        """Report that the attempt did not begin, or may run elsewhere."""
        ...


class StoppableProcess(Protocol):
    """A process in which an attempt runs."""

    def request_stop(self, token: str, stop: Stop) -> None:
        """Tell the node to stop."""
        ...

    def force(self) -> None:
        """End the process: interrupt its node now, SIGKILL a moment later. The attempt ends with it."""
        ...


class Attempt:
    """What the executor, the node's context and the stream know about an attempt while it is held."""

    __slots__ = (
        "assignment",
        "awaited",
        "begun_ns",
        "deadline",
        "failure",
        "forks",
        "in_thread",
        "memories",
        "message",
        "named",
        "percent",
        "process",
        "redact",
        "reports",
        "settled",
        "step",
        "steps",
        "stop",
        "stop_seen",
        "successor",
        "task",
        "timer",
        "timer_at",
        "token",
        "traceparent",
        "unawaited",
    )

    def __init__(
        self, assignment: work_pb2.NodeTaskAssignment, reports: NodeReports, steps: Sequence[work_pb2.EagerStep] = ()
    ) -> None:
        self.assignment = assignment
        self.token = assignment.token
        self.traceparent = assignment.traceparent
        """The trace context that it runs in; empty if none."""
        self.reports = reports
        self.memories: Memories | None = None
        """Keeps the variables of its cycle and flow."""
        self.unawaited: dict[int, tuple[str, Coroutine[Any, Any, Any]]] = {}
        """What its node has asked of them on a loop and not begun to await, with the names of the methods."""
        self.process: StoppableProcess | None = None
        """The process that it runs in, while it runs in one of its own."""
        self.awaited = ""
        """The kind of place that it waits for, or has had: "thread" or "process"; empty on the loop."""
        self.forks = fork_count()
        """By which a process that its node, or another one, has forked is told from its own."""
        self.in_thread = False
        """Whether a plain function has begun, which notices a stop only when it checks."""
        self.task: asyncio.Task[Any] | None = None
        self.deadline = math.inf
        """When it times out, by the loop's clock; infinite if never."""
        self.begun_ns: int | None = None
        """When the node's code was reached, by the performance counter; None before."""
        self.stop: Stop | None = None
        self.stop_seen = False
        """Whether the node's code has noticed the stop."""
        self.steps = steps
        """The eager steps that may follow this one, directly or one after another."""
        self.successor: Attempt | None = None
        """The attempt of an eager node that goes on with what this one emits."""
        self.settled = False
        """Whether its outcome is decided: what the code does from then on is not reported."""
        self.failure: work_pb2.NodeTaskFailure | None = None
        """How it failed, once that is decided; None if it did not."""
        self.named = False
        """Whether the server knows that this worker holds it."""
        self.redact: Redactor | None = None
        """Removes secrets from texts; None when the config has none."""
        self.percent = 0
        """The highest progress so far."""
        self.message = ""
        """The message of the latest progress."""
        self.step = ""
        """The step that the node reported last."""
        self.timer: asyncio.TimerHandle | None = None
        self.timer_at = 0.0
        """When the timer goes off, by the loop's clock: uvloop's timers for what is due at once do not know."""

    @property
    def idempotency_key(self) -> str:
        """The same text for every attempt of the node in its run, whatever the number of the cycle: see Context."""
        given = self.assignment
        if not given.flow_id:
            return f"{given.node_task_id}:{given.run_id}"
        item = f":{given.item}" if given.HasField("item") else ""
        return f"{given.run_id}:{given.node_id}{item}"

    def redacted(self, text: str) -> str:
        """Return `text` without the values of this attempt's secrets."""
        return text if self.redact is None else self.redact(text)

    def duration_ns(self) -> int:
        """Return the time since the node's code was reached."""
        return 0 if self.begun_ns is None else time.perf_counter_ns() - self.begun_ns
