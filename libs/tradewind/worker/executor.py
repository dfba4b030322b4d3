"""Runs assigned nodes, stops them when asked to, and reports how each ended."""

import asyncio
import contextvars
import functools
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.worker import failures
from tradewind.worker.attempt import Attempt, Reports
from tradewind.worker.deadlines import Deadlines
from tradewind.worker.eager import next_assignment
from tradewind.worker.errors import NodeFault
from tradewind.worker.memory import Memories
from tradewind.worker.nodes import AnyNode
from tradewind.worker.outputs import Ending
from tradewind.worker.processes.pool import EXIT_TIMEOUT
from tradewind.worker.running import NodeRunner, in_context
from tradewind.worker.server_clock import ServerClock
from tradewind.worker.stopping import Stop, StopKind
from tradewind.worker.times import seconds_of
from tradewind.worker.tracing import NodeTracer

if TYPE_CHECKING:
    from tradewind.worker.loop_watch import LoopWatch
    from tradewind.worker.metrics import WorkerMetrics

logger = logging.getLogger("tradewind.worker")

TIMEOUT_GRACE = 1.0
"""Seconds that a node has to clean up after its deadline."""

LONG_TURN = 0.001
"""Seconds that one turn of the loop may take before eager nodes continue in the next."""


class Executor:
    """Holds the attempts of this worker from their assignment to their report.

    Every attempt that `start` takes is reported exactly once, as completed, failed, terminated or given back; but not
    at all when its lease is lost. All methods belong to the event loop's thread.
    """

    def __init__(
        self,
        nodes: Mapping[str, AnyNode],
        reports: Reports,
        runner: NodeRunner,
        *,
        memories: Memories | None = None,
        tracer: NodeTracer | None = None,
        metrics: "WorkerMetrics | None" = None,
        watch: "LoopWatch | None" = None,
        grace: float = 10.0,
    ) -> None:
        """`runner` calls the nodes' code. `grace`, in seconds, is a stop's default.

        `runner` and `watch` are closed with the executor.
        """
        self._nodes = nodes
        self._reports = reports
        self._runner = runner
        self._memories = memories
        self._tracer = tracer
        self._metrics = metrics
        self._watch = watch
        self._grace = grace
        self._held: dict[str, Attempt] = {}
        self._deadlines = Deadlines(self._held, self._expire)
        self._abandoned_tasks: set[asyncio.Task[Any]] = set()
        self._idle = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        owner = asyncio.current_task()
        assert owner is not None
        self._owner = owner
        self.clock = ServerClock()
        self.eager_enabled = False
        """Whether eager nodes may begin: this worker is connected to a node task manager and is not leaving."""

    @property
    def held(self) -> Mapping[str, Attempt]:
        """The attempts that have no outcome yet, by token."""
        return self._held

    def name_held_tokens(self) -> list[str]:
        """Return every held token, and note that the server knows of them."""
        for attempt in self._held.values():
            attempt.named = True
        return list(self._held)

    def start(self, assignment: work_pb2.NodeTaskAssignment) -> None:
        """Run an assigned node, unless its token is held already."""
        attempt = self._attempt(assignment, assignment.eager_steps)
        if attempt.token in self._held:
            return
        if assignment.attempt > 1:
            self._end_earlier_attempts(assignment)
        node = self._nodes.get(assignment.node_type)
        if node is None:
            fault = NodeFault("UNKNOWN_NODE_TYPE", f"this worker does not offer the node type {assignment.node_type}")
            self._reports.fail(failures.faulted(attempt, fault))
            return
        overdue_s = self._loop.time() - attempt.deadline
        if overdue_s > 0:
            self._reports.fail(failures.timed_out(attempt, self._late_message(overdue_s)))
            return
        self._hold(attempt)
        run = self._run_chain if attempt.steps else self._coroutine_of
        attempt.task = self._loop.create_task(run(attempt, node))

    def _late_message(self, seconds: float) -> str:
        message = f"the deadline passed {seconds:.1f} s before this worker got the node task"
        if self.clock.synced:
            return message
        return f"{message}; if that is wrong, the clock of the worker's machine is ahead"

    def _attempt(self, assignment: work_pb2.NodeTaskAssignment, steps: Sequence[work_pb2.EagerStep]) -> Attempt:
        attempt = Attempt(assignment, self._reports, steps)
        attempt.memories = self._memories
        if assignment.HasField("deadline"):
            attempt.deadline = self.clock.loop_time(assignment.deadline)
        return attempt

    def _hold(self, attempt: Attempt) -> None:
        self._held[attempt.token] = attempt
        self._deadlines.watch(attempt.deadline)
        if self._watch is not None:
            self._watch.node_begins()

    async def _run_chain(self, attempt: Attempt, node: AnyNode) -> None:
        """Run a node, then the eager nodes that follow: within one turn of the loop, unless that takes too long, so
        that all of them are reported at once."""
        began, outer_context = time.perf_counter(), contextvars.copy_context()
        while True:
            await in_context(outer_context.copy(), self._coroutine_of(attempt, node))
            if attempt.successor is None:
                return
            attempt = attempt.successor
            node = self._nodes[attempt.assignment.node_type]
            if time.perf_counter() - began > LONG_TURN:
                await self._pause(attempt, 0)
                began = time.perf_counter()

    async def _pause(self, attempt: Attempt, seconds: float) -> None:
        """Wait, or give others a turn, before a node begins; a node that is stopped meanwhile never does."""
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self._forget(attempt)
            raise

    def _coroutine_of(self, attempt: Attempt, node: AnyNode) -> Coroutine[Any, Any, object]:
        """Return the coroutine for the attempt's task."""
        if attempt.assignment.HasField("start_in"):
            return self._run_in_time(attempt, node)
        return self._run_traced(attempt, node)

    async def _run_in_time(self, attempt: Attempt, node: AnyNode) -> None:
        await self._pause(attempt, seconds_of(attempt.assignment.start_in))
        await self._run_traced(attempt, node)

    def _run_traced(self, attempt: Attempt, node: AnyNode) -> Coroutine[Any, Any, object]:
        if self._tracer is None or not attempt.traceparent:
            return self._run(attempt, node)
        return self._tracer.within_span(attempt, functools.partial(self._run, attempt, node))

    def _end_earlier_attempts(self, assignment: work_pb2.NodeTaskAssignment) -> None:
        """End an earlier attempt of the same node here: it lost its lease while this worker was out of contact."""
        for token, earlier in list(self._held.items()):
            if earlier.assignment.node_task_id == assignment.node_task_id:
                self.lose(token, f"attempt {assignment.attempt} has begun")

    def terminate(self, termination: work_pb2.NodeTaskTermination) -> None:
        """Ask a node to stop; after its grace it is reported as terminated, whatever its code does."""
        attempt = self._held.get(termination.token)
        if attempt is not None:
            grace = seconds_of(termination.grace) or self._grace
            mark = termination.stop
            self._request_stop(attempt, Stop(StopKind.TERMINATED, mark.reason or "stopped", mark.by or "system"), grace)

    def lose(self, token: str, reason: str) -> None:
        """Stop a node whose lease is lost, without a report."""
        attempt = self._held.get(token)
        if attempt is not None:
            logger.info("the lease of %s is lost: %s", attempt.assignment.node_task_id, reason)
            attempt.stop = Stop(StopKind.LEASE_LOST, reason or "the lease is lost")
            if self._metrics is not None:
                self._metrics.lost()
            self._abandon(attempt)

    def give_back_all(self, reason: str, grace: float) -> None:
        """Ask every node to stop; attempts that stop, or have no outcome after `grace` seconds, are given back.

        Attempts that were already asked to stop get no more time than that either.
        """
        for attempt in list(self._held.values()):
            if attempt.timer is not None and attempt.timer_at > self._loop.time() + max(grace, EXIT_TIMEOUT):
                self._set_timer(attempt, grace, self._handle_grace_over)
            self._request_stop(attempt, Stop(StopKind.GIVEN_BACK, reason), grace)

    async def wait_idle(self) -> None:
        """Wait until no attempt is held."""
        while self._held:
            self._idle.clear()
            await self._idle.wait()

    async def close(self) -> None:
        """Drop the attempts that are still held, without a report, and wait at most a second for their code to end."""
        for attempt in list(self._held.values()):
            attempt.stop = Stop(StopKind.LEASE_LOST, "the worker is closed")
            self._abandon(attempt)
        self._deadlines.close()
        if self._watch is not None:
            self._watch.close()
        if self._abandoned_tasks:
            await asyncio.wait(self._abandoned_tasks, timeout=1.0)
        await self._runner.close()

    async def _run(self, attempt: Attempt, node: AnyNode) -> work_pb2.NodeTaskFailure | None:
        attempt.begun_ns = time.perf_counter_ns()
        try:
            ending = await self._runner.run(attempt, node)
        except BaseException as error:
            if self._loop_is_ending(attempt, error):
                self._forget(attempt)
                raise
            return self._settle(attempt, None, error)
        return self._settle(attempt, ending, None)

    def _loop_is_ending(self, attempt: Attempt, error: BaseException) -> bool:
        """Return whether the whole loop is ending; otherwise a node that cancels itself or raises this has failed."""
        if isinstance(error, asyncio.CancelledError):
            return attempt.stop is None and self._owner.cancelling() > 0
        return isinstance(error, GeneratorExit) and self._loop.is_closed()

    def _settle(
        self, attempt: Attempt, ending: Ending | None, error: BaseException | None
    ) -> work_pb2.NodeTaskFailure | None:
        """Report how an attempt ended, unless that was reported before; return the failure if it is one."""
        if attempt.settled:
            return attempt.failure
        attempt.settled = True
        self._forget(attempt)
        kind = attempt.stop.kind if attempt.stop is not None else None
        if ending is not None and (kind is None or (kind is StopKind.GIVEN_BACK and not attempt.stop_seen)):
            duration_ns = attempt.duration_ns()
            eager_token = self._hold_successor(attempt, ending) if attempt.steps else ""
            self._reports.complete(attempt.token, ending, duration_ns, attempt.traceparent, eager_token)
            self._count(attempt, "completed")
            return None
        if kind is StopKind.LEASE_LOST:
            return None
        stopped = attempt.stop_seen or error is None or isinstance(error, asyncio.CancelledError)
        if kind is StopKind.GIVEN_BACK and stopped:
            self._reports.give_back(attempt.token)
            self._count(attempt, "given_back")
            return None
        failure = attempt.failure = failures.failure_of(attempt, error)
        if not failure.terminated:
            failures.log(attempt, failure)
        self._reports.fail(failure)
        self._count(attempt, "terminated" if failure.terminated else "failed")
        return failure

    def _hold_successor(self, attempt: Attempt, ending: Ending) -> str:
        """Hold the eager node that continues with these outputs; return its token, "" if there is none."""
        if not self.eager_enabled or attempt.stop is not None or attempt.task is None or attempt.task.cancelling():
            return ""
        assignment = next_assignment(attempt.assignment, attempt.steps, ending, self.clock.now)
        node = self._nodes.get(assignment.node_type) if assignment is not None else None
        if assignment is None or node is None or not node.eager:
            return ""
        successor = attempt.successor = self._attempt(assignment, attempt.steps)
        successor.task = attempt.task
        self._hold(successor)
        return successor.token

    def _count(self, attempt: Attempt, outcome: str) -> None:
        if self._metrics is not None:
            self._metrics.ended(attempt.assignment.node_type, outcome, attempt.duration_ns())

    def _forget(self, attempt: Attempt) -> None:
        self._held.pop(attempt.token, None)
        if not self._held:
            self._idle.set()
        if attempt.timer is not None:
            attempt.timer.cancel()

    def _set_timer(self, attempt: Attempt, seconds: float, then: Callable[[Attempt], None]) -> None:
        if attempt.timer is not None:
            attempt.timer.cancel()
        attempt.timer_at = self._loop.time() + seconds
        attempt.timer = self._loop.call_later(seconds, then, attempt)

    def _request_stop(self, attempt: Attempt, stop: Stop, grace: float) -> None:
        if attempt.stop is not None:
            return
        attempt.stop = stop
        if attempt.begun_ns is None:
            # Its task has not run yet: a cancellation would end it before its first line, without a report.
            self._abandon(attempt)
            return
        self._set_timer(attempt, grace, self._handle_grace_over)
        if attempt.process is not None:
            attempt.process.request_stop(attempt.token, stop)
        elif attempt.task is not None and not attempt.in_thread:
            attempt.task.cancel()

    def _expire(self, attempt: Attempt) -> None:
        ran_s = attempt.duration_ns() / 1e9
        reason = f"the node's deadline has passed, {ran_s:.1f} s after it began"
        if attempt.awaited and not attempt.in_thread and attempt.process is None:
            place = attempt.awaited
            reason = (
                f"the node's deadline has passed, {ran_s:.1f} s after its worker took it, and no {place} was free for "
                f"it by then ({place}_capacity); a worker without async nodes takes only what it can run"
            )
        if ran_s <= self._loop.time() - attempt.deadline:
            reason = "the node's deadline passed before its worker could begin it, because the worker was busy"
        self._request_stop(attempt, Stop(StopKind.TIMED_OUT, reason), TIMEOUT_GRACE)

    def _handle_grace_over(self, attempt: Attempt) -> None:
        logger.warning(
            "%s is still running although it was told to stop (%s); %s",
            attempt.assignment.node_task_id,
            attempt.stop.reason if attempt.stop else "",
            "it is reported as ended" if attempt.process is None else "its process is being killed",
        )
        if attempt.process is None:
            self._abandon(attempt)
            return
        attempt.stop_seen = True
        message = "the node kept running although it was told to stop, so its process was killed"
        attempt.reports.log(attempt.token, "WARNING", message, time.time_ns())
        attempt.process.force()
        # Its outcome is reported when the process dies, so nothing of it runs any more by then.
        self._set_timer(attempt, EXIT_TIMEOUT, self._abandon)

    def _abandon(self, attempt: Attempt) -> None:
        """Report a stopped attempt now, and leave its code to end by itself, or never."""
        attempt.stop_seen = True
        self._settle(attempt, None, None)
        if attempt.task is not None and not attempt.task.done():
            self._abandoned_tasks.add(attempt.task)
            attempt.task.add_done_callback(self._abandoned_tasks.discard)
            attempt.task.cancel()
