"""Variables that nodes keep: in their cycle, or in their flow from cycle to cycle."""

import asyncio
import hashlib
import inspect
import os
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import msgspec
from google.protobuf.message import Message

from tradewind.api.scheduler.v1 import memory_pb2 as pb
from tradewind.flow.json_text import encode_json
from tradewind.server.backoff import Backoff
from tradewind.worker.attempt import Attempt
from tradewind.worker.errors import MemoryFault, NodeFault
from tradewind.worker.stopping import StopKind
from tradewind.worker.turns import Turn, Turns

Result = TypeVar("Result")

_PATIENCE = 30.0
"""Seconds for which an update is tried again when others are first."""
_PAUSES = (0.002, 2.0)
_LONGEST_TURN = 5.0
"""Seconds after which an update goes ahead out of turn: the `change` of another may never end."""

_TURNS = Turns()

_decode = msgspec.json.Decoder().decode


class Memories(Protocol):
    """Keeps variables."""

    def ask(self, method: str, request: bytes) -> "Future[bytes]":
        """Call GetMemory or UpdateMemory of the scheduler with a serialized request, from any thread.

        The future holds the serialized response, or raises MemoryFault.
        """
        ...


Steps = Generator[Future[bytes] | float, None, Result]
"""Yields what to wait for next, an answer or a pause in seconds; returns the result."""


class NodeMemory:
    """Variables by name: JSON values of at most 64 KiB together.

    In an async node, where an event loop runs, await each method; in a plain function, each returns its result
    directly. Methods raise MemoryFault when the variables cannot be read or changed.
    """

    __slots__ = ("_attempt", "_of_cycle")

    def __init__(self, attempt: Attempt, *, of_cycle: bool) -> None:
        self._attempt = attempt
        self._of_cycle = of_cycle

    # Not typed as Awaitable: type checkers would insist on an await, which plain functions cannot have.
    def get(self, name: str, default: Any = None) -> Any:
        """Return a variable, or `default` if it does not exist."""
        return self._run("get", self._get(name, default))

    def all(self) -> Any:
        """Return every variable, as a dict."""
        return self._run("all", self._all())

    def set(self, name: str, value: Any) -> Any:
        """Set a variable, whatever its value was; return None."""
        return self._run("set", self._change({name: value}, ()))

    def delete(self, name: str) -> Any:
        """Delete a variable if it exists; return None."""
        return self._run("delete", self._change({}, (name,)))

    def update(self, name: str, change: Callable[[Any], Any], default: Any = None, *, once: bool = False) -> Any:
        """Set a variable to `change(value)` and return its new value; `value` is `default` if it does not exist.

        No change is lost: when others were first, `change` is called again with the new value, so it must have no side
        effects. With `once`, further attempts of this node in this run change nothing more.
        """
        return self._run("update", self._update(name, change, default, once))

    def _run(self, method: str, steps: Steps[Any]) -> Any:
        memory = "cycle_memory" if self._of_cycle else "flow_memory"
        return _run_steps(self._attempt, f"ctx.{memory}.{method}", steps)

    def _get(self, name: str, default: Any) -> Steps[Any]:
        variables, _ = yield from self._read([name])
        return variables.get(name, default)

    def _all(self) -> Steps[dict[str, Any]]:
        variables, _ = yield from self._read([])
        return variables

    def _change(self, values: dict[str, Any], deleted: Sequence[str]) -> Steps[None]:
        request = pb.UpdateMemoryRequest(scope=self._scope(), set_json=_json(values), delete=deleted)
        yield from _call(self._attempt, "UpdateMemory", request)

    def _update(self, name: str, change: Callable[[Any], Any], default: Any, once: bool) -> Steps[Any]:
        owner = id(self._attempt.memories), self._scope().SerializeToString()
        turn = _TURNS.take(owner)
        try:
            if not turn.done():
                yield turn
            return (yield from self._update_in_turn(name, change, default, once))
        finally:
            _TURNS.end(owner, turn)

    def _update_in_turn(self, name: str, change: Callable[[Any], Any], default: Any, once: bool) -> Steps[Any]:
        key = f"{self._attempt.idempotency_key}\n{name}"
        request_id = hashlib.sha256(key.encode()).hexdigest()[:40] if once else ""
        deadline, backoff = time.monotonic() + _PATIENCE, Backoff(*_PAUSES)
        while True:
            variables, version = yield from self._read([name])
            value = change(variables.get(name, default))
            request = pb.UpdateMemoryRequest(
                scope=self._scope(),
                set_json=_json({name: value}),
                expected_version=version,
                request_id=request_id or os.urandom(16).hex(),
            )
            try:
                yield from _call(self._attempt, "UpdateMemory", request)
            except MemoryFault as fault:
                if fault.reason != "VERSION_CONFLICT" or time.monotonic() > deadline:
                    raise
            else:
                # An earlier attempt may have made the change, with another value.
                return (yield from self._get(name, default)) if once else value
            yield backoff.next_s()

    def _read(self, names: Sequence[str]) -> Steps[tuple[dict[str, Any], int]]:
        request = pb.GetMemoryRequest(scope=self._scope(), names=names)
        answer = yield from _call(self._attempt, "GetMemory", request)
        memory = pb.GetMemoryResponse.FromString(answer).memory
        return _decode(memory.variables_json), memory.version

    def _scope(self) -> pb.MemoryScope:
        return scope_of(self._attempt, of_cycle=self._of_cycle)


def set_result(attempt: Attempt, value: Any) -> Any:
    """Set the result on the record of the attempt's cycle."""

    def steps() -> Steps[None]:
        scope = scope_of(attempt, of_cycle=True)
        request = pb.UpdateMemoryRequest(scope=scope, result_json=_json(value, "the result"))
        yield from _call(attempt, "UpdateMemory", request)

    return _run_steps(attempt, "ctx.set_result", steps())


def scope_of(attempt: Attempt, *, of_cycle: bool) -> pb.MemoryScope:
    """Return the scope of the variables, the cycle or the flow. Raises MemoryFault for a task outside any flow."""
    assignment = attempt.assignment
    if not assignment.flow_id:
        raise MemoryFault(
            "WRONG_STATUS", "a task outside any flow has no memory: run it in a flow, or keep the data elsewhere"
        )
    if not of_cycle:
        return pb.MemoryScope(flow_id=assignment.flow_id)
    return pb.MemoryScope(
        flow_id=assignment.flow_id, cycle=assignment.cycle, run=assignment.run, run_id=assignment.run_id
    )


def refuse_unawaited(attempt: Attempt) -> None:
    """Raise NodeFault when a node that has returned did not await what it asked of a memory: that never happened."""
    tasks = {task.get_coro() for task in asyncio.all_tasks()}
    # A task that is cancelled before it begins closes its coroutine: the node gave that up.
    forgotten = [
        (name, coroutine)
        for name, coroutine in attempt.unawaited.values()
        if coroutine not in tasks and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
    ]
    attempt.unawaited = {}
    for _, coroutine in forgotten:
        coroutine.close()
    if forgotten:
        name, _ = forgotten[0]
        message = f"{name}(...) did nothing, because the node did not await it: write await {name}(...)"
        raise NodeFault("NODE_ERROR", message, type="NotAwaited", non_retryable=True)


def _run_steps(attempt: Attempt, name: str, steps: Steps[Any]) -> Any:
    """Return the result of `steps`, which the node calls `name`: directly, or as a coroutine if a loop is running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run_blocking(steps)
    coroutine = _run_async(attempt, steps)
    attempt.unawaited[id(steps)] = name, coroutine
    return coroutine


async def _run_async(attempt: Attempt, steps: Steps[Any]) -> Any:
    attempt.unawaited.pop(id(steps), None)
    try:
        while True:
            step = next(steps)
            if isinstance(step, float):
                await asyncio.sleep(step)
            elif isinstance(step, Turn):
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LONGEST_TURN):
                        await asyncio.wrap_future(step)
            else:
                with suppress(MemoryFault):  # the step that asked raises it
                    await asyncio.wrap_future(step)
    except StopIteration as done:
        return done.value
    finally:
        steps.close()


def _run_blocking(steps: Steps[Any]) -> Any:
    try:
        while True:
            step = next(steps)
            if isinstance(step, float):
                time.sleep(step)
            else:
                wait((step,), _LONGEST_TURN if isinstance(step, Turn) else None)
    except StopIteration as done:
        return done.value
    finally:
        steps.close()


def _call(attempt: Attempt, method: str, request: Message) -> Steps[bytes]:
    stop = attempt.stop
    if stop is not None and stop.kind is StopKind.LEASE_LOST:
        # Another attempt may be running by now, so this one must have no effect any more.
        attempt.stop_seen = True
        raise stop.exception()
    if attempt.memories is None:
        raise MemoryFault("UNAVAILABLE", "this worker has no scheduler to keep variables")
    answer = attempt.memories.ask(method, request.SerializeToString())
    yield answer
    return answer.result()


def _json(value: Any, what: str = "variables") -> str:
    try:
        return encode_json(value, what).decode()
    except ValueError as error:
        raise MemoryFault("INVALID_INPUT", f"this is not JSON: {error}") from error
