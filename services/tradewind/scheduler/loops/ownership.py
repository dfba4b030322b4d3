"""Holds on to partitions."""

import asyncio

import structlog

from tradewind.scheduler.use_cases.own_partitions import OwnPartitions

_TAKE_S = 1.0

_log = structlog.get_logger(__name__)


class OwnershipLoop:
    """Renews leases three times as often as they lapse, shares with other replicas as often, and looks every second for
    what is its own by now.

    With `sole` this replica is the only one: what a predecessor held when it died is taken over at once.
    """

    def __init__(self, own: OwnPartitions, lease_s: float, *, sole: bool) -> None:
        self._own = own
        self._renew_s = lease_s / 3
        self._sole = sole

    async def run(self) -> None:
        """Go on for ever."""
        loop = asyncio.get_running_loop()
        renewed_s = -self._renew_s
        while True:
            try:
                if loop.time() - renewed_s >= self._renew_s:
                    renewed_s = loop.time()
                    await self._own.renew()
                    if not self._sole:
                        await self._own.share()
                if not self._own.complete:
                    await self._own.take(force=self._sole)
            except Exception as error:
                _log.warning("partitions_not_renewed", error=repr(error))
            wait_s = max(0.0, renewed_s + self._renew_s - loop.time())
            await asyncio.sleep(wait_s if self._own.complete else min(wait_s, _TAKE_S))
