"""Keeps this replica's partitions."""

import asyncio
import math

import structlog

from tradewind.scheduler.use_cases.alarm import Alarm
from tradewind.scheduler.use_cases.own_partitions import OwnPartitions
from tradewind.server.incidents import IncidentLog

_ACQUIRE_S = 1.0

_log = structlog.get_logger(__name__)


class OwnershipLoop:
    """Reports this replica's presence three times per lease, and takes the partitions of its share that nobody owns.

    The alarm rings when another replica has come, has left or has given up partitions. With `single_replica`,
    partitions that a predecessor held when it died are taken over at once.
    """

    def __init__(self, ownership: OwnPartitions, alarm: Alarm, lease_s: float, *, single_replica: bool) -> None:
        self._ownership = ownership
        self._alarm = alarm
        self._report_s = lease_s / 3
        self._single_replica = single_replica
        self._failing = IncidentLog(_log, "partitions_not_renewed", "partitions_renewed_again")

    async def run(self) -> None:
        """Run forever."""
        loop = asyncio.get_running_loop()
        due_s, woken = loop.time(), False
        while True:
            try:
                if woken or loop.time() >= due_s:
                    due_s = loop.time() + self._report_s
                    await self._ownership.rebalance(alone=self._single_replica)
                    self._single_replica = False
                if not self._ownership.complete:
                    await self._ownership.acquire()
            except Exception as error:
                self._failing.note_error(error)
            wait_s = max(0.0, due_s - loop.time())
            woken = await self._alarm.rest(math.inf, wait_s if self._ownership.complete else min(wait_s, _ACQUIRE_S))
