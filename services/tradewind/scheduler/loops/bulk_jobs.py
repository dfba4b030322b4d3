"""Carries out the bulk jobs of the partitions that this replica owns."""

import asyncio

import structlog

from tradewind.scheduler.ports.bulk_jobs import BulkJobs
from tradewind.scheduler.use_cases.alarm import Alarm
from tradewind.scheduler.use_cases.bulk_jobs import CarryOutJobs
from tradewind.scheduler.use_cases.own_partitions import OwnPartitions

_REST_S = 0.02
"""So long others have their turn after each step."""

_log = structlog.get_logger(__name__)


class BulkJobsLoop:
    """One step of each open job in turn, when one is asked for; otherwise it looks every `look_s`."""

    def __init__(
        self, jobs: BulkJobs, carry_out: CarryOutJobs, own: OwnPartitions, alarm: Alarm, look_s: float
    ) -> None:
        self._jobs = jobs
        self._carry_out = carry_out
        self._own = own
        self._alarm = alarm
        self._look_s = look_s
        own.on_change(lambda: alarm.ring_in(0))

    async def run(self) -> None:
        """Go on for ever."""
        while True:
            more = False
            try:
                for job_id in await self._jobs.open(list(self._own.epochs)):
                    more = await self._step(job_id) or more
            except Exception as error:
                _log.warning("jobs_not_read", error=error)
            if more:
                await asyncio.sleep(_REST_S)
            else:
                await self._alarm.rest(self._look_s)

    async def _step(self, job_id: str) -> bool:
        try:
            return await self._carry_out.step(job_id)
        except Exception as error:
            _log.warning("job_step_failed", job_id=job_id, error=error)
            return False
