"""Runs nodes in a process of their own, one after another, as told by the worker at the other end of a socket."""

import asyncio
import contextlib
import contextvars
import faulthandler
import io
import itertools
import os
import queue
import signal
import socket
import sys
import threading
from concurrent.futures import Future
from types import FrameType

import msgspec

from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.worker import failures, processes
from tradewind.worker.attempt import Attempt
from tradewind.worker.binding import Arguments
from tradewind.worker.context import Context
from tradewind.worker.errors import MemoryFault
from tradewind.worker.forking import reset_in_forks
from tradewind.worker.nodes import AnyNode
from tradewind.worker.outputs import Ending
from tradewind.worker.processes import frames
from tradewind.worker.processes.targets import Target
from tradewind.worker.running import call_plain, run_to_end, stoppable
from tradewind.worker.secrets import Redactor
from tradewind.worker.stopping import NodeStopExecution, Stop, StopKind
from tradewind.worker.telemetry import configure_worker_logging
from tradewind.worker.texts import MESSAGE_BYTES, clip
from tradewind.worker.tracing import NodeTracer

CLEANUP_TIMEOUT = 1.0
"""Seconds in which tasks that an async node leaves behind must end."""
EXIT_PATIENCE = 2.0
"""Seconds that this process has to end by itself once the worker is gone."""


class NodeServer:
    """Nodes run in the main thread, where signals arrive; a second thread listens to the worker.

    SIGTERM raises NodeStopExecution in a node that was told to stop; at any other time it is ignored: whoever stops the
    whole group of processes means the worker, which lets nodes finish.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection: socket.socket | None = connection
        self._sending = threading.Lock()
        self._main = threading.get_ident()
        self._jobs: queue.SimpleQueue[tuple[Attempt, frames.Run] | None] = queue.SimpleQueue()
        self._attempt: Attempt | None = None
        self._task: asyncio.Task[object] | None = None
        self._interruptible = False
        self._mid_frame = False
        self._interrupted = False
        self._has_leftovers = False
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._questions: dict[int, Future[bytes]] = {}
        self._numbers = itertools.count()
        self._tracer: NodeTracer | None = None

    def serve(self, log_level: int | None = None) -> None:
        """Run nodes until the worker is gone. `log_level` is the worker's; None if it has configured no logging."""
        processes.in_child = True
        faulthandler.enable()
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)
        if log_level is not None:
            configure_worker_logging(log_level)
        signal.signal(signal.SIGTERM, self._on_sigterm)
        reset_in_forks(self._handle_fork)
        threading.Thread(target=self._listen, name="tradewind-worker", daemon=True).start()
        with self._runner:
            while (job := self._jobs.get()) is not None:
                reply = self._run(*job)
                self._attempt = None
                self._send(reply)
                if self._tracer is not None:
                    # The process may be killed while it is idle.
                    self._tracer.flush()
                if self._has_leftovers:
                    # Each later node would have to wait for them, and so would an orderly exit: another process has to
                    # take over.
                    with contextlib.suppress(Exception):
                        sys.stdout.flush()
                    os._exit(0)

    # Reports, for the context

    def progress(self, token: str, percent: int, message: str, step: str) -> None:
        """Send the worker the node's progress."""
        self._send(frames.Progress(token, percent, message, step))

    def log(self, token: str, level: str, message: str, created_ns: int) -> None:
        """Send the worker a line of the node's log."""
        self._send(frames.Log(token, level, message, created_ns))

    # Memories, for the context

    def ask(self, method: str, request: bytes) -> "Future[bytes]":
        """Have the worker ask the scheduler."""
        number, answer = next(self._numbers), Future[bytes]()
        if len(request) > frames.LONGEST // 2:
            # The worker would not read it.
            answer.set_exception(MemoryFault.too_large(len(request)))
            return answer
        self._questions[number] = answer
        self._send(frames.Question(number, method, request))
        return answer

    def _handle_answer(self, frame: frames.Answer) -> None:
        answer = self._questions.pop(frame.number, None)
        if answer is None or not answer.set_running_or_notify_cancel():
            return
        if frame.reason:
            answer.set_exception(MemoryFault(frame.reason, frame.message))
        else:
            answer.set_result(frame.response)

    def _run(self, attempt: Attempt, run: frames.Run) -> frames.Reply:
        self._interrupted = False
        self._send(frames.Begun())
        try:
            node = Target(run.module, run.name).load(attempt.assignment.node_type)
            arguments = _arguments(attempt, node, run.config_json)
            with self._traced(run.traceparent):
                ending = self._call(attempt, node, arguments)
        except BaseException as error:
            reply = _failed(attempt, error)
            # The traceback holds the node's frames, which may hold the error: that cycle would keep all their objects.
            error.__traceback__ = None
        else:
            reply = frames.Completed(ending, attempt.stop_seen)
        attempt.settled = True
        return reply

    def _traced(self, traceparent: str) -> contextlib.AbstractContextManager[None]:
        if traceparent and self._tracer is None:
            self._tracer = NodeTracer.configured()
        if not traceparent or self._tracer is None:
            return contextlib.nullcontext()
        return self._tracer.continuing(traceparent)

    def _call(self, attempt: Attempt, node: AnyNode, arguments: Arguments) -> Ending:
        if node.is_async:
            ending, error = run_to_end(
                self._runner.get_loop(), self._call_async(attempt, node, arguments), contextvars.copy_context()
            )
            if error is not None:
                raise error
            return ending
        self._interruptible = True
        try:
            return contextvars.copy_context().run(call_plain, attempt, node, arguments)
        finally:
            self._interruptible = False

    async def _call_async(
        self, attempt: Attempt, node: AnyNode, arguments: Arguments
    ) -> tuple[Ending, BaseException | None]:
        ending: Ending = []
        raised = None
        # _stop sets the stop before it looks for the task, so one of the two sides always sees the other.
        self._task = asyncio.current_task()
        try:
            if attempt.stop is not None:
                raise attempt.stop.exception()
            ending = node.outputs_of(await stoppable(node.function(**arguments), attempt))
        except BaseException as error:
            raised = error
        self._task = None
        leftover = asyncio.all_tasks() - {asyncio.current_task()}
        for task in leftover:
            task.cancel()
        if leftover:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait(leftover, timeout=CLEANUP_TIMEOUT)
            self._has_leftovers = not all(task.done() for task in leftover)
        return ending, raised

    def _send(self, frame: frames.FromChild) -> None:
        connection = self._connection
        if connection is None:
            return
        packed = frames.pack(frame)
        with self._sending:
            # If an exception cut this frame in two, the worker would understand nothing after it.
            self._mid_frame = threading.get_ident() == self._main
            try:
                connection.sendall(packed)
            except OSError:
                os._exit(1)
            self._mid_frame = False
        if self._interrupted and threading.get_ident() == self._main:
            self._interrupted = False
            self._interrupt()

    def _listen(self) -> None:
        assert self._connection is not None
        try:
            while True:
                frame = frames.read_to_child(self._connection)
                if isinstance(frame, frames.Run):
                    # Made here rather than where it runs, so that a stop that comes next finds it.
                    attempt = Attempt(work_pb2.NodeTaskAssignment.FromString(frame.assignment), self)
                    attempt.memories = self
                    attempt.traceparent = frame.traceparent
                    attempt.redact = Redactor(frame.secrets) if frame.secrets else None
                    self._attempt = attempt
                    self._jobs.put((attempt, frame))
                elif isinstance(frame, frames.Answer):
                    self._handle_answer(frame)
                elif isinstance(frame, frames.Interrupt):
                    signal.pthread_kill(self._main, signal.SIGTERM)
                else:
                    self._stop(frame)
        except (EOFError, OSError, msgspec.MsgspecError):
            # The worker is gone: nobody needs what runs here, and nobody else would end it.
            if self._attempt is not None:
                os._exit(1)
            self._jobs.put(None)
            threading.Event().wait(EXIT_PATIENCE)
            os._exit(1)

    def _stop(self, frame: frames.Stop) -> None:
        attempt = self._attempt
        if attempt is None or attempt.token != frame.token:
            return
        attempt.stop = Stop(StopKind.TERMINATED, frame.reason, frame.source)
        task = self._task
        if task is not None:
            with contextlib.suppress(RuntimeError):
                task.get_loop().call_soon_threadsafe(task.cancel)

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        if self._mid_frame:
            self._interrupted = True
        else:
            self._interrupt()

    def _interrupt(self) -> None:
        """Raise the stop in the node's code, or where an async node waits. In the main thread only."""
        attempt, task = self._attempt, self._task
        if attempt is None or attempt.stop is None:
            return
        if task is not None:
            loop = task.get_loop()
            if asyncio.current_task(loop) is not task:
                loop.call_soon_threadsafe(task.cancel)
                return
        elif not self._interruptible:
            return
        attempt.stop_seen = True
        raise attempt.stop.exception()

    def _handle_fork(self) -> None:
        """In a process that a node forked: drop the connection to the worker, and let SIGTERM end the process."""
        self._connection = None
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _failed(attempt: Attempt, error: BaseException) -> frames.Reply:
    if isinstance(error, NodeStopExecution):
        # A class of the node's own may have no reason, or one that cannot be shown: that is a failure like any other.
        with contextlib.suppress(BaseException):
            texts = [clip(attempt.redacted(str(each)), MESSAGE_BYTES) for each in (error.reason, error.source)]
            return frames.Stopped(*texts)
    if attempt.stop is not None and isinstance(error, asyncio.CancelledError):
        return frames.Stopped(attempt.stop.reason, attempt.stop.source)
    return frames.Failed(failures.faulted(attempt, error).SerializeToString(), attempt.stop_seen)


def _arguments(attempt: Attempt, node: AnyNode, config_json: str) -> Arguments:
    assignment = attempt.assignment
    # A config with secrets is converted for this call only and kept nowhere.
    plan = (
        node.binder.convert_config(msgspec.json.decode(config_json))
        if config_json
        else node.binder.plan(assignment.config_json)
    )
    arguments = node.binder.bind(plan, assignment.inputs, assignment.run_inputs_json)
    if node.signature.context_name is not None:
        arguments[node.signature.context_name] = Context(attempt)
    return arguments
