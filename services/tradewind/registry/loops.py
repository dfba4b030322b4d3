"""What the registry does by itself: it takes what has lapsed out of the indices."""

import asyncio
import random

import structlog

from tradewind.registry.ports import Sweeper

_log = structlog.get_logger(__name__)
_BETWEEN_STEPS_S = 0.05


class SweepLoop:
    """Sweeps about every `interval_s`, in small steps with a pause between them.

    Any number of replicas may do so at once: a step that another one took finds nothing.
    """

    def __init__(self, sweeper: Sweeper, interval_s: float) -> None:
        self._sweeper = sweeper
        self._interval_s = interval_s

    async def run(self) -> None:
        """Go on for ever."""
        while True:
            # Apart from each other, so that replicas started together do not sweep together.
            await asyncio.sleep(self._interval_s * random.uniform(0.8, 1.2))
            try:
                await self._sweep()
            except Exception as error:
                _log.warning("sweep_failed", error=error, next_after_s=self._interval_s)

    async def _sweep(self) -> None:
        total = 0
        while taken := await self._sweeper.sweep():
            total += taken
            await asyncio.sleep(_BETWEEN_STEPS_S)
        if total:
            _log.debug("swept", entries=total)
