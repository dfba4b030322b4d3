"""What a node can ask and report while it runs."""

from datetime import UTC, datetime
from typing import Any

from tradewind.worker.attempt import Attempt
from tradewind.worker.memory import NodeMemory, set_result
from tradewind.worker.node_log import NodeLog
from tradewind.worker.stopping import Stop
from tradewind.worker.texts import PROGRESS_BYTES, STEP_BYTES, clip
from tradewind.worker.waiting import Resumed
from tradewind.worker.yields import YIELD


def _bounded_percent(percent: float) -> int:
    try:
        return int(min(100.0, max(0.0, float(percent))))
    except (TypeError, ValueError):
        raise ValueError(f"ctx.progress({percent!r}): the first argument must be a number from 0 to 100") from None


class Context:
    """Facts about the cycle, and ways to report progress, write logs and notice a stop. Usable from any thread."""

    __slots__ = ("_attempt",)

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    # Not typed as Awaitable: type checkers would insist on an await, which plain functions cannot have.
    def progress(self, percent: float, message: str = "", *, step: str | None = None) -> Any:
        """Report the node's progress: `percent` from 0 to 100 (it never falls), `message` up to 1 KiB for people.

        Less counts as 0 and more as 100. Raises ValueError if it is not a number.

        `step`, up to 256 bytes, is what the node is doing now; None keeps the previous step.

        The report is sent at once. `await ctx.progress(...)` in an async node also gives other nodes a turn, and lets
        a stop reach a node that calculates; plain functions just call it.
        """
        attempt = self._attempt
        if not attempt.settled:
            attempt.percent = max(attempt.percent, _bounded_percent(percent))
            attempt.message = clip(attempt.redacted(str(message)), PROGRESS_BYTES)
            if step is not None:
                attempt.step = clip(attempt.redacted(str(step)), STEP_BYTES)
            attempt.reports.progress(attempt.token, attempt.percent, attempt.message, attempt.step)
        return YIELD

    def heartbeat(self) -> Any:
        """Report that the node is alive, for flows that limit how long a node may be silent; `progress` does so too.

        Once a second is often enough for any limit. Awaiting it is optional, as with `progress`.
        """
        attempt = self._attempt
        if not attempt.settled:
            attempt.reports.progress(attempt.token, attempt.percent, attempt.message, attempt.step)
        return YIELD

    @property
    def cycle_memory(self) -> NodeMemory:
        """Variables that the nodes of this cycle share; they end with it."""
        return NodeMemory(self._attempt, of_cycle=True)

    @property
    def flow_memory(self) -> NodeMemory:
        """Variables that the flow carries from cycle to cycle, such as a cursor or a position."""
        return NodeMemory(self._attempt, of_cycle=False)

    def set_result(self, value: Any) -> Any:
        """Set the result on the cycle's record: JSON of at most 64 KiB; the last call wins.

        Await it in an async node, just call it in a plain function. Raises MemoryFault.
        """
        return set_result(self._attempt, value)

    @property
    def log(self) -> NodeLog:
        """Writes lines to the log of the cycle."""
        return NodeLog(self._attempt)

    @property
    def stop_requested(self) -> bool:
        """Whether the node should end: it was asked to or timed out, its lease is lost, or the worker is leaving.

        Plain functions should check it now and then; async nodes are stopped where they wait.
        """
        return self._stop() is not None

    def check_stop(self) -> None:
        """Raise NodeStopExecution when the node should end."""
        stop = self._stop()
        if stop is not None:
            raise stop.exception()

    def _stop(self) -> Stop | None:
        stop = self._attempt.stop
        if stop is not None:
            self._attempt.stop_seen = True
        return stop

    @property
    def idempotency_key(self) -> str:
        """The same text for every attempt of this node in this run: pass it to systems that must not act twice.

        It does not contain the number of the cycle: a flow that is deleted and registered again counts from 0 again,
        and a cycle may get another number if the store loses its last second.
        """
        return self._attempt.idempotency_key

    @property
    def node_task_id(self) -> str:
        """Id of the node task, by which signals reach it: `<flow>:<cycle>:<run>:<node>[:<item>]`, or `task:<id>`."""
        return self._attempt.assignment.node_task_id

    @property
    def flow_id(self) -> str:
        """Id of the flow."""
        return self._attempt.assignment.flow_id

    @property
    def cycle(self) -> int:
        """Number of the cycle."""
        return self._attempt.assignment.cycle

    @property
    def run(self) -> int:
        """Run of the cycle: 0 at first, one more with each rerun."""
        return self._attempt.assignment.run

    @property
    def run_id(self) -> str:
        """Unique id of that run."""
        return self._attempt.assignment.run_id

    @property
    def component_id(self) -> str:
        """Id of the component that the node belongs to."""
        return self._attempt.assignment.component_id

    @property
    def node_id(self) -> str:
        """Id of the node."""
        return self._attempt.assignment.node_id

    @property
    def node_type(self) -> str:
        """Type of the node."""
        return self._attempt.assignment.node_type

    @property
    def item(self) -> int | None:
        """For a node that runs once for each item of a list, the place of this item, from 0; None for other nodes."""
        assignment = self._attempt.assignment
        return assignment.item if assignment.HasField("item") else None

    @property
    def attempt(self) -> int:
        """Number of the attempt; 1 for the first."""
        return self._attempt.assignment.attempt

    @property
    def resumed(self) -> Resumed | None:
        """What ended the latest wait of the node, after it returned a Wait; None if it never waited."""
        assignment = self._attempt.assignment
        return Resumed.of(assignment.resumed) if assignment.HasField("resumed") else None

    @property
    def user_id(self) -> str:
        """The user that the flow belongs to."""
        return self._attempt.assignment.user_id

    @property
    def planned_time(self) -> datetime | None:
        """When the cycle was due, in UTC: use it as "now", so that a rerun gives the same result."""
        assignment = self._attempt.assignment
        return assignment.planned_time.ToDatetime(tzinfo=UTC) if assignment.HasField("planned_time") else None

    @property
    def deadline(self) -> datetime | None:
        """When the attempt times out, in UTC by the servers' clock; None if never."""
        assignment = self._attempt.assignment
        return assignment.deadline.ToDatetime(tzinfo=UTC) if assignment.HasField("deadline") else None

    @property
    def traceparent(self) -> str:
        """W3C trace context that the node belongs to; empty if none."""
        return self._attempt.traceparent
