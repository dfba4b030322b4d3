"""Nodes that run in processes of their own, for the tests beside this file."""

import asyncio
import contextlib
import contextvars
import ctypes
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tradewind.worker import Context, Emit, Fatal, MemoryFault, NodeStopExecution, RetryLater, node, running
from tradewind.worker.processes import frames


@node("pid", process=True)
def pid() -> int:
    return os.getpid()


@node("keeps_much", process=True)
def keeps_much(ctx: Context) -> list[str]:
    """Return why a variable cannot be set that is longer than a frame."""
    try:
        ctx.flow_memory.set("prices", "1" * frames.LONGEST)
    except MemoryFault as fault:
        return [fault.reason, str(fault)]
    return []


_KEPT: list[asyncio.Task[None]] = []


@node("leaves_a_task_behind", process=True)
async def leaves_a_task_behind() -> int:
    """Leave a task that ignores its cancellation."""

    async def stay() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    _KEPT.append(asyncio.create_task(stay()))
    await asyncio.sleep(0)
    return os.getpid()


@node("facts", process=True)
def facts(ctx: Context, value: int, factor: int = 2) -> dict[str, Any]:
    """Report everything that a context tells."""
    ctx.progress(40, "begun")
    ctx.log.warning("value is %s", value)
    return {
        "product": value * factor,
        "idempotency_key": ctx.idempotency_key,
        "flow": [ctx.flow_id, ctx.cycle, ctx.run, ctx.node_id, ctx.attempt],
        "planned_time": ctx.planned_time,
        "main_thread": threading.current_thread() is threading.main_thread(),
        "pid": os.getpid(),
    }


@node("branch", outputs=["buy", "sell"], process=True)
async def branch(ctx: Context, value: int) -> Emit:
    await ctx.progress(10)
    await asyncio.sleep(0)
    return Emit(buy=value) if value > 0 else Emit(sell=value)


class Share(BaseModel):
    """A value that a process reads with pydantic."""

    symbol: str
    price: float


@node("priced", process=True)
def priced(shares: list[Share]) -> float:
    """Return a value that is not a number when there is only one price."""
    prices: list[Any] = [share.price if len(shares) > 1 else share.symbol for share in shares]
    return max(prices)  # type: ignore[no-any-return]


@node("priced_on_a_loop", process=True)
async def priced_on_a_loop(shares: list[Share]) -> float:
    return priced(shares)


@node("meets", process=True)
def meets(mine: str, theirs: str) -> str:
    """Return only when another process has come as far."""
    Path(mine).touch()
    while not Path(theirs).exists():
        time.sleep(0.002)
    return "met"


class Large:
    """Stands for data that fills the memory of a machine or of its graphics card."""


held: list[weakref.ref[Large]] = []


@node("fails_with_large_object", process=True)
def fails_with_large_object() -> None:
    gc.disable()
    large = Large()
    held.append(weakref.ref(large))
    raise ValueError(large)


@node("fails_with_large_object_on_a_loop", process=True)
async def fails_with_large_object_on_a_loop() -> None:
    fails_with_large_object()


@node("stops_with_large_object", process=True)
async def stops_with_large_object(ctx: Context) -> None:
    gc.disable()
    large = Large()
    held.append(weakref.ref(large))
    await ctx.progress(1)
    await asyncio.Event().wait()


@node("large_objects_alive", process=True)
def large_objects_alive() -> list[bool]:
    """Report for each large object whether it is still there."""
    return [large() is not None for large in held]


@node("raises", process=True)
def raises(kind: str) -> None:
    if kind == "later":
        raise RetryLater(90, "the exchange is full")
    if kind == "fatal":
        raise Fatal("no such account")
    if kind == "exit":
        sys.exit(3)
    if kind == "unwritable":
        return object()  # type: ignore[return-value]
    raise ValueError("a price below zero")


@node("exits", process=True)
async def exits() -> None:
    async def leave() -> None:
        sys.exit(3)

    await asyncio.gather(leave())


@node("calculates_on_a_loop", process=True)
async def calculates_on_a_loop() -> None:
    running.LONG_TURN_S = 0.0


@node("ends_itself", process=True)
def ends_itself() -> None:
    raise NodeStopExecution("caf\udce9" * 20_000_000)


class Closed(NodeStopExecution):
    """A stop whose reason cannot be shown."""

    def __init__(self) -> None: ...


class Indescribable(Exception):
    """Its traceback cannot be made."""

    @property
    def __cause__(self) -> BaseException | None:  # type: ignore[override]
        raise SystemExit


@node("fails_oddly", process=True)
def fails_oddly(stops: bool) -> None:
    raise Closed if stops else Indescribable


ORDER = contextvars.ContextVar("ORDER", default="none")


@node("binds", process=True)
def binds(order: str) -> str:
    """Report what is bound, and bind something else."""
    before = ORDER.get()
    ORDER.set(order)
    return before


@node("dies", process=True)
def dies(ctx: Context, how: str) -> None:
    ctx.log("last words")
    if how == "segfault":
        ctypes.string_at(0)
    elif how == "exit":
        os._exit(7)
    elif how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "close":
        os.closerange(3, 10_000)
    elif how == "hang up":
        for descriptor in range(3, 10_000):
            with contextlib.suppress(OSError):
                socket.socket(fileno=os.dup(descriptor)).shutdown(socket.SHUT_WR)
        signal.pause()


@node("polls", process=True)
def polls(ctx: Context) -> None:
    ctx.progress(1, str(os.getpid()))
    while True:
        ctx.check_stop()
        time.sleep(0.002)


@node("finishes", process=True)
def finishes(ctx: Context, flag: str) -> str:
    ctx.progress(1, str(os.getpid()))
    while not Path(flag).exists():
        time.sleep(0.002)
    return "done"


@node("waits", process=True)
async def waits(ctx: Context) -> None:
    try:
        await ctx.progress(1, str(os.getpid()))
        await asyncio.Event().wait()
    except NodeStopExecution as stop:
        ctx.log("stopped", reason=stop.reason, source=stop.source)
        raise


@node("calculates", process=True)
def calculates(ctx: Context, note: str, held_s: int = 0) -> None:
    """Never check for a stop; clean up all the same when SIGTERM raises it. Let no other thread run for `held_s`."""
    try:
        ctx.progress(1, str(os.getpid()))
        ctypes.PyDLL(None).sleep(held_s)
        while True:
            sum(range(1000))
    finally:
        Path(note).write_text(type(sys.exc_info()[1]).__name__)


@node("deaf", process=True)
def deaf(ctx: Context) -> None:
    """Ignore everything but SIGKILL, and leave a process behind, in case that spares it."""
    other = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    ctx.progress(1, f"{os.getpid()} {other.pid}")
    while True:
        try:
            time.sleep(600)
        except NodeStopExecution:
            continue


@node("litters", process=True)
def litters(ctx: Context) -> None:
    """Die, leaving a process behind."""
    other = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    ctx.progress(1, str(other.pid))
    os._exit(7)


@node("secretive", process=True)
def secretive(ctx: Context, key: str) -> int:
    ctx.log("the key is %s", key)
    if key.endswith("!"):
        raise ValueError(f"{key} is wrong")
    return len(key)


@node("forks", process=True)
def forks(ctx: Context) -> int:
    """End a forked process with SIGTERM, as multiprocessing does; nobody reads its output."""
    child = os.fork()
    if child == 0:
        ctx.log("not for the worker")
        signal.pause()
    time.sleep(0)
    os.kill(child, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
