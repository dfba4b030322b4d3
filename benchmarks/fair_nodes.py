"""The node of the fairness benchmark: it reports when it began."""

import asyncio
import time

from tradewind.worker import node


@node("bench_began", outputs=["at"])
async def began(pause: float = 0.0) -> float:
    """Return the time at which it began, after a pause of `pause` seconds."""
    at = time.time()
    await asyncio.sleep(pause)
    return at
