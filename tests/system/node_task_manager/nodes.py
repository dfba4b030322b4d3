"""Nodes that record their work in a ledger, one line each: `<node task> <attempt> begun` and `... done`."""

import asyncio
import os
import signal
from pathlib import Path

from tradewind.worker import Context, node

LEDGER = "TRADEWIND_TEST_LEDGER"


def read_ledger(ledger: Path) -> list[tuple[str, str, str]]:
    """Return the lines of a ledger, split into words, except a line that is still being written."""
    text = ledger.read_text(encoding="utf-8") if ledger.exists() else ""
    lines = (line.split() for line in text.split("\n")[:-1])
    return [(key, attempt, event) for key, attempt, event in lines]


def record(ctx: Context, event: str) -> None:
    """Append a line; a single write to a file opened for appending is never torn."""
    with open(os.environ[LEDGER], "a", buffering=1, encoding="utf-8") as ledger:
        ledger.write(f"{ctx.node_task_id} {ctx.attempt} {event}\n")


@node("step")
async def step(ctx: Context, value: int = 0, seconds: float = 0.0) -> int:
    """Take `seconds`, and return the number of steps so far."""
    record(ctx, "begun")
    await asyncio.sleep(seconds)
    record(ctx, "done")
    return value + 1


@node("eager_step", eager=True)
async def eager_step(ctx: Context, value: int = 0, seconds: float = 0.0) -> int:
    """Like `step`, but a worker begins it by itself."""
    return await step(ctx, value, seconds)


@node("shaky")
async def shaky(ctx: Context, failures: int, value: int = 0) -> int:
    """Fail `failures` times, then return the number of the attempt, whatever `value` is."""
    record(ctx, "begun")
    if ctx.attempt <= failures:
        raise OSError(f"attempt {ctx.attempt} fails")
    record(ctx, "done")
    return ctx.attempt


@node("silent")
async def silent(ctx: Context) -> int:
    """In the first attempt stay silent until stopped; in the next, send heartbeats for a long time."""
    record(ctx, "begun")
    try:
        while ctx.attempt == 1:
            await asyncio.sleep(3600)
    finally:
        record(ctx, "done")
    for _ in range(45):
        await ctx.heartbeat()
        await asyncio.sleep(0.2)
    return ctx.attempt


@node("gated")
async def gated(ctx: Context, gate: str, value: int = 0) -> int:
    """In the first attempt wait for a file; return the number of the attempt."""
    record(ctx, "begun")
    while ctx.attempt == 1 and not Path(gate).exists():
        await asyncio.sleep(0.01)
    record(ctx, "done")
    return ctx.attempt


@node("spread")
async def spread(ctx: Context, count: int) -> list[int]:
    """Emit the numbers from 0 up to `count` - 1."""
    record(ctx, "begun")
    record(ctx, "done")
    return list(range(count))


@node("collect")
async def collect(ctx: Context, values: list[int]) -> list[int]:
    """Emit the inputs."""
    record(ctx, "begun")
    record(ctx, "done")
    return values


@node("lethal")
async def lethal(ctx: Context) -> None:
    """Kill the worker."""
    record(ctx, "begun")
    os.kill(os.getpid(), signal.SIGKILL)
