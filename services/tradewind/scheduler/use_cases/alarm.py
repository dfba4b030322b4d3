"""Wakes a loop at the earliest time that anybody has asked for."""

import asyncio
import math

from tradewind.server.beats import next_beat


class Alarm:
    """An alarm clock for one sleeper: sleeping costs nothing until it rings, and setting it costs one comparison."""

    def __init__(self) -> None:
        self._at_s: float | None = None
        self._least_ms: float = math.inf
        """The least that has been asked for since it last rang: later calls must ask for less to be sooner."""
        self._sooner = asyncio.Event()

    def ring_in(self, ms: int) -> None:
        """Ring in at most `ms`; if nobody sleeps by then, the next `rest` returns at once."""
        if ms >= self._least_ms:
            return
        self._least_ms = ms
        at_s = asyncio.get_running_loop().time() + ms / 1000
        if self._at_s is None or at_s < self._at_s:
            self._at_s = at_s
            self._sooner.set()

    async def rest(self, every_s: float, at_most_s: float = math.inf) -> bool:
        """Sleep until it rings, the next beat of `every_s`, or `at_most_s` have passed; say whether it rang."""
        loop = asyncio.get_running_loop()
        end_s = min(next_beat(every_s), loop.time() + at_most_s)
        while True:
            self._sooner.clear()
            left_s = min(end_s, self._at_s if self._at_s is not None else end_s) - loop.time()
            if left_s <= 0:
                break
            try:
                async with asyncio.timeout(left_s):
                    await self._sooner.wait()
            except TimeoutError:
                break
        rang = self._at_s is not None and self._at_s <= loop.time()
        self._at_s, self._least_ms = None, math.inf
        return rang
