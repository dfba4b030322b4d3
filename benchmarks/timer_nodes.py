"""The node of the timer benchmark: it notes how late it began."""

from benchmarks.stamps import stamp
from tradewind.worker import Context, node


@node("bench_stamp", outputs=[])
async def stamped(ctx: Context) -> None:
    """Note how long ago its cycle was due."""
    assert ctx.planned_time is not None
    stamp(ctx.planned_time.timestamp())
