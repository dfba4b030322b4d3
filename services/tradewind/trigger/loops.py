"""The background work of the trigger service."""

import asyncio

import structlog

from tradewind.trigger.use_cases.sweep_indexes import SweepIndexes

_log = structlog.get_logger(__name__)


async def sweep_loop(sweep: SweepIndexes, period_s: float) -> None:
    """Sweep the indexes every `period_s`, until cancelled."""
    while True:
        await asyncio.sleep(period_s)
        try:
            await sweep()
        except Exception as error:
            # The next sweep makes up for it; if the store is away, those who need it report that.
            _log.warning("sweep_failed", error=error)
