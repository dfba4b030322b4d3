"""Bulk jobs: which flows they take, and how they are cancelled while others write them."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.scheduler.memory_scheduler import wakes_nobody
from tradewind.scheduler.domain.bulk_job import BulkAction, BulkFilter, BulkJob, BulkStatus
from tradewind.scheduler.use_cases.manage_bulk_jobs import ManageBulkJobs
from tradewind.server.clock import ManualClock
from tradewind.server.faults import Aborted

JOB = BulkJob("job-1", BulkAction.STOP, BulkFilter(("f",), (), 0, 1, 10), False, "ada", "", 1)


class Contended:
    """One job on record; the next `conflicts` writes lose against those of its owner."""

    def __init__(self, conflicts: int) -> None:
        self.job = JOB
        self.conflicts = conflicts

    async def find(self, job_id: str) -> BulkJob:
        return self.job

    async def save(self, job: BulkJob) -> bool:
        if self.conflicts:
            self.conflicts -= 1
            self.job = replace(self.job, version=self.job.version + 1)
            return False
        self.job = job
        return True


async def cancelled(jobs: Any) -> BulkJob:
    return await ManageBulkJobs(jobs, wakes_nobody, ManualClock()).cancel("job-1")


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        ("eu.a", ["eu.a"]),
        ("eu.*", ["eu.a", "eu.b", "eu.c1"]),
        ("eu.?", ["eu.a", "eu.b"]),
        ("eu.[ab]", []),
        ("eu.[a*", []),
    ],
)
def test_only_star_and_question_mark_are_wildcards_in_flow_ids(pattern: str, matching: list[str]) -> None:
    wanted = BulkFilter((pattern,), (), 0, 1, 10)
    assert [flow_id for flow_id in ("eu.a", "eu.b", "eu.c1", "us.a") if wanted.matches_flow(flow_id)] == matching
    assert (wanted.exact_flow_ids is None) == ("*" in pattern or "?" in pattern)


async def test_cancelling_a_job_retries_after_conflicts() -> None:
    assert (await cancelled(Contended(conflicts=3))).status is BulkStatus.CANCELLED


async def test_cancelling_a_job_that_keeps_changing_is_aborted() -> None:
    with pytest.raises(Aborted, match='job "job-1" kept changing; try again') as refused:
        await cancelled(Contended(conflicts=1000))
    assert refused.value.reason == "VERSION_CONFLICT"
