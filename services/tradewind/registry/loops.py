"""The background work of the registry: removing lapsed entries from the indexes."""

import asyncio
import random

import structlog

from tradewind.registry.ports import Sweeper

_log = structlog.get_logger(__name__)
_BETWEEN_STEPS_S = 0.05


async def sweep_loop(sweeper: Sweeper, interval_s: float) -> None:
    """Sweep about every `interval_s`, in small steps with a pause between them, until cancelled.

    Any number of replicas may sweep at once: entries that another replica has removed are simply gone.
    """
    while True:
        # Vary the interval, so that replicas started together do not sweep together.
        await asyncio.sleep(interval_s * random.uniform(0.8, 1.2))
        try:
            await _sweep(sweeper)
        except Exception as error:
            _log.warning("sweep_failed", error=error, next_after_s=interval_s)


async def _sweep(sweeper: Sweeper) -> None:
    total = 0
    while removed := await sweeper.sweep():
        total += removed
        await asyncio.sleep(_BETWEEN_STEPS_S)
    if total:
        _log.debug("swept", entries=total)
