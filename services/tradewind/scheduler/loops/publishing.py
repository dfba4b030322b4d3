"""Finds out whether anybody listens to ends of cycles, and publishes the ends."""

import math

import structlog

from tradewind.scheduler.ports.peers import PeerUnavailable
from tradewind.scheduler.use_cases.alarm import Alarm
from tradewind.scheduler.use_cases.own_partitions import OwnPartitions
from tradewind.scheduler.use_cases.publish_ends import PublishEnds

_RETRY_S = 0.5

_log = structlog.get_logger(__name__)


class PublishEndsLoop:
    """Asks every `every_s`; publishes when an end rings the alarm, and ends that a predecessor left unpublished.

    What could not be published is soon tried again.
    """

    def __init__(self, publish_ends: PublishEnds, ownership: OwnPartitions, alarm: Alarm, every_s: float) -> None:
        self._publish_ends = publish_ends
        self._ownership = ownership
        self._alarm = alarm
        self._every_s = every_s
        self._pending = True
        ownership.on_change(self._gained)

    async def run(self) -> None:
        """Run forever."""
        while True:
            try:
                await self._publish_ends.poll_listeners()
                if self._publish_ends.has_listeners or self._pending:
                    self._pending = False
                    if not await self._publish_ends(list(self._ownership.epochs)):
                        self._pending = True
            except PeerUnavailable as error:
                self._pending = self._pending or self._publish_ends.has_listeners
                _log.debug("listeners_unknown", error=error.detail)
            except Exception as error:
                self._pending = True
                _log.warning("ends_not_published", error=error)
            await self._alarm.rest(self._every_s, _RETRY_S if self._pending else math.inf)

    def _gained(self) -> None:
        self._pending = True
        self._alarm.ring_in(0)
