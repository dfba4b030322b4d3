"""What is reported about an attempt that did not succeed."""

import asyncio
import logging
import os
import sysconfig
import traceback
from datetime import timedelta
from types import TracebackType

from tradewind.api.node_task_manager.v1 import node_task_pb2, work_pb2
from tradewind.worker.attempt import Attempt
from tradewind.worker.errors import Fatal, NodeFault, RetryLater
from tradewind.worker.stopping import NodeStopExecution, StopKind
from tradewind.worker.texts import MESSAGE_BYTES, TRACEBACK_BYTES, clip, clip_middle

logger = logging.getLogger("tradewind.worker")

_LOGGED_BYTES = 512
"""The most bytes of a message in the worker's own log if a traceback follows it."""
_NAMED_OF_GROUP = 3
_SDK = os.path.dirname(__file__) + os.sep


def describe(error: BaseException) -> NodeFault:
    """Return the fault to report for an exception: a NodeFault unchanged, any other as NODE_ERROR with its type.

    A group of one exception, as task groups raise it, counts as that exception. A larger group with a Fatal is final,
    and one of RetryLater alone is tried again after the longest of their times.
    """
    original, leaves = error, _leaves(error)
    if len(leaves) == 1:
        error = leaves[0]
    if isinstance(error, NodeFault):
        return error
    later = all(isinstance(leaf, RetryLater) for leaf in leaves)
    led_to = any(leaf.__cause__ is not None or leaf.__context__ is not None for leaf in leaves)
    # A subclass may have no `after`, or one of another type.
    afters = [getattr(leaf, "after", None) for leaf in leaves] if later else []
    waits = [after.total_seconds() for after in afters if isinstance(after, timedelta)]
    return NodeFault(
        "NODE_ERROR",
        _message(error),
        type_name(error),
        # RetryLater by itself is a decision and needs no traceback, unless another exception led to it.
        traceback="" if later and not led_to else _traceback(original),
        retry_after=max(waits, default=None),
        non_retryable=any(isinstance(leaf, Fatal) for leaf in leaves),
    )


def type_name(error: BaseException) -> str:
    """Return the own name of the exception's class, as flows list it, whatever its metaclass says."""
    name: str = type.__dict__["__name__"].__get__(type(error))
    return name


def error_summary(error: BaseException) -> str:
    """Return in one sentence what the user's code raised, and where: `ValueError: no such market (nodes.py:7)`."""
    summary = f"{type_name(error)}: {clip(_message(error), MESSAGE_BYTES)}"
    # The message of a SyntaxError contains its place.
    location = "" if isinstance(error, SyntaxError) else _location(error)
    return f"{summary} ({location})" if location else summary


def fault_of(failure: work_pb2.NodeTaskFailure) -> NodeFault:
    """Return the fault that a failure was made from."""
    error = failure.error
    return NodeFault(
        error.code,
        error.message,
        error.type,
        traceback=error.traceback,
        retry_after=failure.retry_after.ToMicroseconds() / 1e6 if failure.HasField("retry_after") else None,
        non_retryable=failure.non_retryable,
    )


def failure_of(attempt: Attempt, error: BaseException | None) -> work_pb2.NodeTaskFailure:
    """Return the failure of an attempt that was stopped, or else raised `error`."""
    stop = attempt.stop
    if stop is not None and stop.kind is StopKind.TIMED_OUT:
        return timed_out(attempt, stop.reason)
    if stop is not None and stop.kind is StopKind.TERMINATED:
        return _terminated(attempt, stop.exception(), error)
    if isinstance(error, NodeStopExecution):
        return _terminated(attempt, error, None)
    assert error is not None
    return faulted(attempt, error)


def log(attempt: Attempt, failure: work_pb2.NodeTaskFailure) -> None:
    """Write a failure to the worker's own log."""
    error = failure.error
    logger.warning(
        "%s failed: %s: %s%s",
        attempt.assignment.node_task_id,
        error.type or error.code,
        # A traceback ends with the whole message.
        clip(error.message, _LOGGED_BYTES) if error.traceback else error.message,
        f"\n{error.traceback.rstrip()}" if error.traceback else "",
    )


def faulted(attempt: Attempt, error: BaseException) -> work_pb2.NodeTaskFailure:
    """Return the failure for an exception that the attempt raised, even if describing the exception raises another."""
    try:
        return _failure(attempt, describe(error))
    except BaseException:
        fatal = issubclass(type(error), Fatal)
        fault = NodeFault("NODE_ERROR", "its error cannot be described", type_name(error), non_retryable=fatal)
        return _failure(attempt, fault)


def timed_out(attempt: Attempt, reason: str) -> work_pb2.NodeTaskFailure:
    """Return the failure of an attempt whose deadline has passed."""
    return _failure(attempt, NodeFault("TIMEOUT", reason))


def _terminated(attempt: Attempt, stop: NodeStopExecution, error: BaseException | None) -> work_pb2.NodeTaskFailure:
    """Return the failure of an attempt that stopped because of `stop`; `error` is what its code raised instead."""
    if error is None or isinstance(error, asyncio.CancelledError):
        failure = _failure(attempt, NodeFault("", _text(stop) or "stopped"))
    else:
        failure = faulted(attempt, error)
    failure.terminated = True
    return failure


def _failure(attempt: Attempt, fault: NodeFault) -> work_pb2.NodeTaskFailure:
    failure = work_pb2.NodeTaskFailure(
        token=attempt.token,
        error=node_task_pb2.NodeTaskError(
            code=fault.code,
            message=clip(attempt.redacted(fault.message), MESSAGE_BYTES),
            type=clip(fault.type, MESSAGE_BYTES),
            # Redacted before it is cut: half of a secret would not be recognized.
            traceback=clip_middle(attempt.redacted(fault.traceback), TRACEBACK_BYTES),
        ),
        non_retryable=fault.non_retryable,
        traceparent=attempt.traceparent,
    )
    failure.duration.FromNanoseconds(attempt.duration_ns())
    if fault.retry_after is not None:
        failure.retry_after.FromMicroseconds(round(fault.retry_after * 1e6))
    return failure


def _leaves(error: BaseException) -> list[BaseException]:
    """Return the exceptions in a group and in the groups within it, however deep, or the exception itself."""
    leaves: list[BaseException] = []
    rest = [error]
    while rest:
        each = rest.pop()
        if isinstance(each, BaseExceptionGroup):
            rest += reversed(each.exceptions)
        else:
            leaves.append(each)
    return leaves


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # the node's own code may raise anything, also SystemExit
        return f"{type_name(error)} (its message cannot be shown)"


def _message(error: BaseException) -> str:
    message = _text(error) or "(no message)"
    if isinstance(error, BaseExceptionGroup):
        leaves = [f"{type_name(leaf)}: {_message(leaf)}" for leaf in _leaves(error)[:_NAMED_OF_GROUP]]
        message += f": {'; '.join(leaves)}"
    return message


def _traceback(error: BaseException) -> str:
    try:
        frames = _own_frames(error.__traceback__)
        return "".join(traceback.TracebackException(type(error), error, frames, compact=True).format())
    except Exception:
        return ""


def _location(error: BaseException) -> str:
    """Return the innermost line of the user's own code, or of any code if there is none of the user's."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    outside_sdk = [each for each in frames if not each[0].startswith((_SDK, "<frozen "))]
    installed = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib"))
    own_frames = [each for each in outside_sdk if not each[0].startswith(installed)] or outside_sdk
    if not own_frames:
        return ""
    name, line = own_frames[-1]
    current_directory = os.getcwd() + os.sep
    return f"{name.removeprefix(current_directory)}:{line}"


def _own_frames(frame: TracebackType | None) -> TracebackType | None:
    """Drop the frames of the SDK that led into the node."""
    while frame is not None and frame.tb_frame.f_code.co_filename.startswith(_SDK):
        frame = frame.tb_next
    return frame
