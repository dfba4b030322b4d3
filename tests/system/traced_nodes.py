"""Node types that record spans of their own."""

import asyncio
import logging

from opentelemetry import trace

from tradewind.worker import Context, Emit, node

_tracer = trace.get_tracer("tests")


@node("traced.branch", outputs=["left", "right"])
async def branch(value: int = 1) -> Emit:
    """Emit on one of two handles."""
    with _tracer.start_as_current_span("deciding"):
        return Emit(left=value)


@node("traced.flaky", outputs=["value"])
def flaky(ctx: Context, value: int) -> int:
    """Fail at the first attempt, in a thread."""
    with _tracer.start_as_current_span("trying", record_exception=False, set_status_on_exception=False):
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return value + 1


@node("traced.apart", outputs=["value"], process=True)
def apart(value: int) -> int:
    """Run in a process of its own."""
    with _tracer.start_as_current_span("apart"):
        logging.getLogger(__name__).warning("value %s", value)
        return value + 1


@node("traced.apart_async", outputs=["value"], process=True)
async def apart_async(value: int) -> int:
    """Run in a process of its own, on a loop."""
    with _tracer.start_as_current_span("apart, waiting"):
        return value + 1


@node("traced.eager", outputs=["value"], eager=True)
async def eager(ctx: Context, value: int) -> int:
    """Begin with what the node before emits, and fail at the first attempt."""
    if ctx.attempt == 1:
        raise ValueError("not yet")
    return value + 1


@node("traced.shared", outputs=["value"], cache="screening")
async def shared(value: int = 1) -> int:
    """Run once for all that do the same work."""
    await asyncio.sleep(0.2)
    return value
