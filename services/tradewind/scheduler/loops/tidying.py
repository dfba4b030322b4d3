"""Keeps the indexes of flows free of cycles that are no longer kept."""

import asyncio
import random

import structlog

from tradewind.scheduler.ports.cycles import CycleRecords
from tradewind.scheduler.use_cases.own_partitions import OwnPartitions

_REST_S = 0.05
"""How long the store is left alone after each step."""

_log = structlog.get_logger(__name__)


class TidyLoop:
    """Tidies the flows of the partitions that this replica owns; since each has one owner, one replica does it."""

    def __init__(self, cycles: CycleRecords, ownership: OwnPartitions, every_s: float) -> None:
        self._cycles = cycles
        self._ownership = ownership
        self._every_s = every_s

    async def run(self) -> None:
        """Run forever."""
        while True:
            await asyncio.sleep(random.uniform(0.9, 1.1) * self._every_s)
            for partition in self._ownership.epochs:
                try:
                    await self._tidy(partition)
                except Exception as error:
                    _log.warning("flows_not_tidied", partition=partition, error=error)

    async def _tidy(self, partition: int) -> None:
        after, trimmed, forgotten = "", 0, 0
        while True:
            epoch = self._ownership.epochs.get(partition)
            if epoch is None:
                return
            step = await self._cycles.tidy(partition, after, epoch)
            after, trimmed, forgotten = step.after, trimmed + step.trimmed, forgotten + step.forgotten
            if step.done:
                break
            await asyncio.sleep(_REST_S)
        if trimmed or forgotten:
            _log.info("flows_tidied", partition=partition, cycles=trimmed, entries=forgotten)
