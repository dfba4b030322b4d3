"""The store's clock, for comparing Python's time with times that scripts wrote."""

import time

import structlog

from tradewind.server.beats import beat
from tradewind.server.redis.checks import why_unusable
from tradewind.server.redis.client import REDIS_ERRORS, Client
from tradewind.server.store_time import StoreTime

_EVERY_S = 5.0

_log = structlog.get_logger(__name__)


class StoreClock:
    """Implements Clock: the store's time, computed from this machine's monotonic clock and the measured offset. Until
    the store has been asked, it is the machine's own time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._store_time = StoreTime()
        local_us = _local_us()
        self._store_time.observe(time.time_ns() // 1000, local_us, local_us)

    def now_ms(self) -> int:
        return (_local_us() + self._store_time.offset_us) // 1000

    async def sync(self) -> None:
        """Ask the store for its time. Raises ConnectionError when it does not answer."""
        asked_us = _local_us()
        try:
            seconds, micros = await self._client.call("", "TIME")
        except REDIS_ERRORS as error:
            raise ConnectionError(why_unusable(error)) from error
        self._store_time.observe(int(seconds) * 1_000_000 + int(micros), asked_us, _local_us())

    async def run(self) -> None:
        """Keep asking: the store may have moved to another machine, or its clock may have been set."""
        while True:
            await beat(_EVERY_S)
            try:
                await self.sync()
            except OSError as error:
                _log.debug("store_time_unknown", error=error)


def _local_us() -> int:
    return time.monotonic_ns() // 1000
