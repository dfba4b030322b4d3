"""Nodes of the soak. With TRADEWIND_SOAK_LEAK each run of `soak.number` keeps that many bytes for good."""

import os

from tradewind.worker import Context, node

LEAK_VARIABLE = "TRADEWIND_SOAK_LEAK"

_LEAK = int(os.environ.get(LEAK_VARIABLE) or 0)
_kept: list[bytearray] = []


@node("soak.number")
async def number(ctx: Context, value: int = 1) -> int:
    """Emit a number, log a line and report progress."""
    if _LEAK:
        _kept.append(bytearray(_LEAK))
    ctx.log.info("the number is %s", value)
    await ctx.progress(50, "half of it")
    return value


@node("soak.double")
def double(value: int) -> int:
    """Double a number, in a thread."""
    return 2 * value


@node("soak.fail")
async def fail(value: int) -> int:
    """Fail."""
    raise ValueError(f"{value} will not do")
