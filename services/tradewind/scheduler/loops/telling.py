"""Finds out whether anybody listens to ends of cycles, and publishes the ends."""

import structlog

from tradewind.scheduler.ports.peers import PeerUnavailable
from tradewind.scheduler.use_cases.alarm import Alarm
from tradewind.scheduler.use_cases.own_partitions import OwnPartitions
from tradewind.scheduler.use_cases.tell_ends import TellEnds

_log = structlog.get_logger(__name__)


class TellEndsLoop:
    """Asks every `every_s`; publishes when an end rings the alarm, and ends that a predecessor left unpublished."""

    def __init__(self, tell: TellEnds, own: OwnPartitions, alarm: Alarm, every_s: float) -> None:
        self._tell = tell
        self._own = own
        self._alarm = alarm
        self._every_s = every_s
        self._left = True
        own.on_change(self._gained)

    async def run(self) -> None:
        """Run forever."""
        while True:
            try:
                await self._tell.look()
                if self._tell.has_listeners or self._left:
                    self._left = False
                    if not await self._tell(list(self._own.epochs)):
                        self._left = True
            except PeerUnavailable as error:
                _log.debug("listeners_not_known", error=error.detail)
            except Exception as error:
                self._left = True
                _log.warning("ends_not_told", error=error)
            await self._alarm.rest(self._every_s)

    def _gained(self) -> None:
        self._left = True
        self._alarm.ring_in(0)
