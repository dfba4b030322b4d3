"""Does one kind of work in the partitions that this replica owns."""

from collections.abc import Awaitable, Callable

import structlog

from tradewind.scheduler.ports.owning import Epochs
from tradewind.scheduler.ports.peers import PeerUnavailable
from tradewind.scheduler.use_cases.alarm import Alarm
from tradewind.scheduler.use_cases.own_partitions import OwnPartitions

_log = structlog.get_logger(__name__)


class OwnedWork:
    """Works when the alarm rings or the owned partitions change, and every `poll_s` in case nobody rang.

    `work` returns in how many seconds there is more to do, infinity if it does not know. When it fails, `failure` is
    logged, and the work is repeated after `retry_s`.
    """

    def __init__(
        self,
        failure: str,
        work: Callable[[Epochs], Awaitable[float]],
        ownership: OwnPartitions,
        alarm: Alarm,
        poll_s: float,
        retry_s: float = 1.0,
    ) -> None:
        self._failure = failure
        self._work = work
        self._ownership = ownership
        self._alarm = alarm
        self._poll_s = poll_s
        self._retry_s = retry_s
        ownership.on_change(lambda: alarm.ring_in(0))

    async def run(self) -> None:
        """Run forever."""
        while True:
            wait_s = self._retry_s
            try:
                wait_s = await self._work(self._ownership.epochs)
            except PeerUnavailable as error:
                _log.warning(self._failure, error=error.detail)
            except Exception as error:
                _log.warning(self._failure, error=error)
            await self._alarm.rest(self._poll_s, wait_s)
