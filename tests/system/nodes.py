"""Node types for the tests of the whole stack."""

import asyncio
import os
from pathlib import Path
from typing import Any

from tradewind.worker import Context, Emit, Wait, node


@node("numbers", outputs=["numbers"])
async def numbers(ctx: Context, start: int = 1, count: int = 3) -> list[int]:
    """Emit consecutive numbers."""
    ctx.log.info("numbers from %s", start)
    return list(range(start, start + count))


@node("total", outputs=["total"])
def total(numbers: list[int]) -> int:
    """Add up numbers."""
    return sum(numbers)


@node("parity", outputs=["even", "odd"])
async def parity(total: int) -> Emit:
    """Emit on one of two handles."""
    return Emit(even=total) if total % 2 == 0 else Emit(odd=total)


@node("failing", outputs=["nothing"])
async def failing(total: int) -> None:
    """Fail."""
    raise ValueError(f"will not have {total}")


@node("gate", outputs=["passed"])
async def gate(ctx: Context, file: str, total: int = 0) -> int:
    """Write `<file>.begun` on beginning, and wait until `file` exists."""
    Path(f"{file}.begun").write_text(f"{os.getpid()} {ctx.attempt}\n", encoding="utf-8")
    await ctx.progress(50, "at the gate")
    while not Path(file).exists():
        await asyncio.sleep(0.01)
    return total


@node("half", outputs=["half"])
async def half(number: int) -> int:
    """Halve an even number."""
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number // 2


@node("shared", outputs=["labelled"])
async def shared(ctx: Context, number: int, label: int) -> str:
    """Label an item, with its place."""
    return f"{label}-{ctx.item}-{number}"


@node("listed", outputs=["listed"])
async def listed(values: list[Any], errors: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Emit the inputs."""
    return {"values": values, "errors": errors}


@node("payment", outputs=["paid"])
async def payment(ctx: Context, sum: int) -> dict[str, Any] | Wait:
    """Wait for the signal `paid`, then emit its payload and the number of the attempt."""
    if ctx.resumed is None:
        return Wait("paid")
    return {"sum": sum, "attempt": ctx.attempt, "payload": ctx.resumed.payload, "by": ctx.resumed.by}


@node("nap", outputs=["woken"], process=True)
def nap(ctx: Context, seconds: float) -> bool | Wait:
    """Wait for some time, in a process of its own."""
    return Wait(until=seconds) if ctx.resumed is None else ctx.resumed.timed_out


@node("keep", outputs=["kept"])
async def keep(value: Any) -> Any:
    """Emit the input."""
    return value


@node("counted", outputs=["value"])
def counted(ctx: Context, ledger: str, value: int = 0, step: int = 1, needs: str = "") -> int:
    """Add `step` to `value`, note the run in the ledger, and fail if the needed file is missing."""
    with Path(ledger).open("a", encoding="utf-8") as file:
        file.write(f"{ctx.node_id}:{ctx.run}\n")
    if needs and not Path(needs).exists():
        raise ValueError(f"{needs} is not there")
    return value + step


@node("report_outcome", outputs=["outcome"])
async def report_outcome(outcome: dict[str, Any], greeting: str = "") -> dict[str, Any]:
    """Emit the outcome that it receives."""
    return {**outcome, "greeting": greeting}


@node("read_status", outputs=["status"])
async def read_status(value: dict[str, Any]) -> str:
    """Emit the status in its input."""
    return str(value["status"])
