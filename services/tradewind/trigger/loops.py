"""What the trigger service does by itself."""

import asyncio

import structlog

from tradewind.trigger.use_cases.sweep_indexes import SweepIndexes

_log = structlog.get_logger(__name__)


async def sweep_loop(sweep: SweepIndexes, period_s: float) -> None:
    """Sweep the indexes every so often, until it is cancelled."""
    while True:
        await asyncio.sleep(period_s)
        try:
            await sweep()
        except Exception as error:
            # It goes on with the next one; a store that is away is told of by those who need it.
            _log.warning("sweep_failed", error=error)
