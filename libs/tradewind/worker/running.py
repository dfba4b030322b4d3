"""Runs a node's own code: on the event loop, where it can be stopped when it waits, in a thread or in a process."""

import asyncio
import contextvars
import functools
import logging
import time
import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

import msgspec

from tradewind.worker import processes
from tradewind.worker.attempt import Attempt
from tradewind.worker.binding import Arguments, ConfigPlan
from tradewind.worker.context import Context
from tradewind.worker.failures import describe
from tradewind.worker.forking import end_if_forked
from tradewind.worker.memory import refuse_unawaited
from tradewind.worker.nodes import AnyNode
from tradewind.worker.outputs import Ending
from tradewind.worker.processes.pool import ProcessPool
from tradewind.worker.secrets import SecretResolver, refuse_secrets
from tradewind.worker.threads import ThreadPool

logger = logging.getLogger("tradewind.worker")

LONG_TURN_S = 5.0
"""Seconds that an async node may calculate without awaiting before a warning is logged."""

Result = TypeVar("Result")


class NodeRunner:
    """Calls nodes with the values in their assignments. Without `processes`, `process=True` makes no difference."""

    def __init__(self, secrets: SecretResolver, threads: ThreadPool, processes: ProcessPool | None = None) -> None:
        self._secrets = secrets
        self._threads = threads
        self._processes = processes

    async def run(self, attempt: Attempt, node: AnyNode) -> Ending:
        """Call the node and return what it emits.

        Raises what the node raises, and NodeFault when it cannot be called or emits a secret.
        """
        assignment = attempt.assignment
        plan = node.binder.plan(assignment.config_json)
        if self._processes is not None and node.process:
            return await self._run_in_process(self._processes, attempt, node, plan)
        if plan.unresolved is not None:
            config, attempt.redact = await self._secrets.resolve(plan.unresolved)
            plan = node.binder.convert_config(config)
        arguments = node.binder.bind(plan, assignment.inputs, assignment.run_inputs_json)
        context_name = node.signature.context_name
        if context_name is not None:
            arguments[context_name] = Context(attempt)
        ending: Ending
        if node.is_async:
            ending = node.outputs_of(await stoppable(node.function(**arguments), attempt))
        else:
            attempt.awaited = "thread"
            ending = await self._threads.run(functools.partial(call_plain, attempt, node, arguments))
        if attempt.redact is not None:
            refuse_secrets(attempt.redact, ending)
        return ending

    async def _run_in_process(
        self, processes: ProcessPool, attempt: Attempt, node: AnyNode, plan: ConfigPlan
    ) -> Ending:
        if plan.unresolved is None:
            attempt.awaited = "process"
            return await processes.run(attempt, node.type)
        config, redactor = await self._secrets.resolve(plan.unresolved)
        attempt.redact = redactor
        attempt.awaited = "process"
        config_json = msgspec.json.encode(config).decode()
        ending = await processes.run(attempt, node.type, config_json, redactor.secrets)
        refuse_secrets(redactor, ending)
        return ending

    async def close(self) -> None:
        """Let every thread end once it is done, and end every process."""
        self._threads.close()
        if self._processes is not None:
            await self._processes.close()


@types.coroutine
def stoppable(coroutine: Coroutine[Any, Any, Any], attempt: Attempt) -> Generator[Any, Any, Any]:
    """Run `coroutine`; when the attempt is stopped, the first cancellation reaches it as NodeStopExecution.

    Later cancellations are passed on unchanged: they may be from an `asyncio.timeout` of the node's own, which
    recognizes only a CancelledError. Raises NodeFault as `refuse_unawaited` does.
    """
    thrown: BaseException | None = None
    stop_raised = False
    try:
        while True:
            end_if_forked(attempt.forks)
            started = time.monotonic()
            try:
                waited = coroutine.send(None) if thrown is None else coroutine.throw(thrown)
            finally:
                end_if_forked(attempt.forks)
                # Its traceback may hold this frame, and so itself: that cycle would keep all objects of the node.
                thrown = None
                if time.monotonic() - started > LONG_TURN_S:
                    _warn_of_blocked_loop(attempt, time.monotonic() - started)
            try:
                yield waited
            except asyncio.CancelledError as error:
                thrown = error
                if attempt.stop is not None and not stop_raised:
                    stop_raised = attempt.stop_seen = True
                    thrown = attempt.stop.exception()
            except BaseException as error:
                thrown = error
    except StopIteration as done:
        if attempt.unawaited:
            # Tasks that the node has left behind begin first: what it asked may be awaited there.
            yield
            refuse_unawaited(attempt)
        return done.value


def _warn_of_blocked_loop(attempt: Attempt, seconds: float) -> None:
    """Log that the node held the worker's event loop, unless it runs in a process of its own, where it may."""
    if not processes.in_child:
        message = (
            f"the node held the worker's event loop for {seconds:.1f} s without awaiting, so no other async node could "
            "run and no lease was renewed: make it a plain function, or set process=True"
        )
        logger.warning("%s: %s", attempt.assignment.node_task_id, message)
        attempt.reports.log(attempt.token, "WARNING", message, time.time_ns())


@types.coroutine
def in_context(context: contextvars.Context, coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Run `coroutine` in a context of its own, within the task of the caller."""
    thrown: BaseException | None = None
    try:
        while True:
            waited = context.run(coroutine.send, None) if thrown is None else context.run(coroutine.throw, thrown)
            thrown = None
            try:
                yield waited
            except BaseException as error:
                thrown = error
    except StopIteration as done:
        return done.value


def run_to_end(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Result], context: contextvars.Context | None = None
) -> Result:
    """Run `coroutine` on `loop` and return its result, even if a node stops the loop, or a task that it began exits.

    `sys.exit` and `loop.stop()` would break off the loop with everything in it; so the loop is run again, and only code
    that awaits the task that exited sees the exit.
    """
    task = loop.create_task(coroutine, context=context)
    while True:
        try:
            return loop.run_until_complete(task)
        except (SystemExit, KeyboardInterrupt, RuntimeError):
            if task.done():
                raise


def call_plain(attempt: Attempt, node: AnyNode, arguments: Arguments) -> Ending:
    """Run a plain function and encode what it returns, both away from the worker's event loop."""
    attempt.in_thread = True
    if attempt.stop is not None:
        # It was stopped while it waited for its turn.
        attempt.stop_seen = True
        raise attempt.stop.exception()
    try:
        result = node.function(**arguments)
    except StopIteration as error:
        # No coroutine can pass it on: it would become a RuntimeError.
        raise describe(error) from error
    finally:
        end_if_forked(attempt.forks)
    return node.outputs_of(result)
