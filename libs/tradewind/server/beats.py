"""Aligns recurring checks to the same moments, so that an idle process wakes once for all of them.

A beat is when a monotonic clock, such as an event loop's, reads a whole multiple of the period. All processes of a
machine share that clock, so services and the store between them wake together as well.
"""

import asyncio
import math

_TOLERANCE = 0.01
"""Waking before a beat by less than this part of the period counts as on the beat: timers may fire early."""


def beat_after(now: float, every: float) -> float:
    """Return the time of the beat after `now`, at most 1.01 times `every` later; all in the same unit."""
    return (math.floor(now / every + _TOLERANCE) + 1) * every


def next_beat(every_s: float) -> float:
    """Return the time of the next beat by the clock of the running loop."""
    return beat_after(asyncio.get_running_loop().time(), every_s)


async def beat(every_s: float) -> None:
    """Return at the next beat."""
    await asyncio.sleep(next_beat(every_s) - asyncio.get_running_loop().time())
