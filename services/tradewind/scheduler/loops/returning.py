"""Tells nodes of other flows how the cycles ended that they wait for."""

import math

import structlog

from tradewind.scheduler.ports.peers import PeerUnavailable
from tradewind.scheduler.use_cases.alarm import Alarm
from tradewind.scheduler.use_cases.own_partitions import OwnPartitions
from tradewind.scheduler.use_cases.return_ends import ReturnEnds

_RETRY_S = 0.5

_log = structlog.get_logger(__name__)


class ReturnEndsLoop:
    """Tells when an end rings the alarm, and what a predecessor left untold; otherwise it looks every `look_s`."""

    def __init__(self, return_ends: ReturnEnds, own: OwnPartitions, alarm: Alarm, look_s: float) -> None:
        self._return_ends = return_ends
        self._own = own
        self._alarm = alarm
        self._look_s = look_s
        own.on_change(lambda: alarm.ring_in(0))

    async def run(self) -> None:
        """Go on for ever."""
        while True:
            wait_s = math.inf
            try:
                await self._return_ends(list(self._own.epochs))
            except PeerUnavailable as error:
                _log.warning("ends_not_returned", error=error.detail)
                wait_s = _RETRY_S
            except Exception as error:
                _log.warning("ends_not_returned", error=error)
                wait_s = _RETRY_S
            await self._alarm.rest(self._look_s, wait_s)
