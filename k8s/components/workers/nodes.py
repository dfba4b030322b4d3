"""Nodes for a first flow; replace them with your own."""

from tradewind.worker import Context, node


@node("numbers", outputs=["numbers"])
async def numbers(ctx: Context, count: int = 3) -> list[int]:
    """Emit the numbers from 1 to `count`."""
    ctx.log.info("%s numbers", count)
    return list(range(1, count + 1))


@node("total", outputs=["total"])
async def total(numbers: list[int]) -> int:
    """Add up numbers."""
    return sum(numbers)
