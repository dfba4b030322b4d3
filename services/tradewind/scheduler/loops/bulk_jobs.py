"""Carries out the bulk jobs of the partitions that this replica owns."""

import math

import structlog

from tradewind.scheduler.loops.owned_work import OwnedWork
from tradewind.scheduler.ports.bulk_jobs import BulkJobs
from tradewind.scheduler.ports.owning import Epochs
from tradewind.scheduler.ports.waking import Work
from tradewind.scheduler.use_cases.execute_jobs import ExecuteJobs
from tradewind.scheduler.use_cases.wake_owners import WakeOwners

_REST_S = 0.02
"""How long to rest after each step, so that other work has its turn."""

_log = structlog.get_logger(__name__)


def bulk_jobs_loop(jobs: BulkJobs, execute: ExecuteJobs, wake: WakeOwners, poll_s: float) -> OwnedWork:
    """Return the loop that takes one step of each open job in turn."""

    async def work(epochs: Epochs) -> float:
        more = False
        for job_id in await jobs.open(list(epochs)):
            more = await step(job_id) or more
        return _REST_S if more else math.inf

    async def step(job_id: str) -> bool:
        try:
            return await execute.step(job_id)
        except Exception as error:
            _log.warning("job_step_failed", job_id=job_id, error=error)
            return False

    return OwnedWork("jobs_not_read", work, wake, Work.JOBS, poll_s)
