"""Bulk jobs: which flows they take, and how they are cancelled while others write them."""

from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.scheduler.memory_scheduler import MemoryScheduler, event, wakes_nobody
from tradewind.scheduler.domain.bulk_job import BulkAction, BulkFilter, BulkJob, BulkStatus
from tradewind.scheduler.domain.cycle_outline import CycleOutline
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.ports.owning import NOT_OWNER
from tradewind.scheduler.use_cases.execute_jobs import ExecuteJobs
from tradewind.scheduler.use_cases.manage_bulk_jobs import ManageBulkJobs
from tradewind.server.clock import ManualClock
from tradewind.server.faults import Aborted, Unreadable

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


def executing(scheduler: MemoryScheduler, stop: Any = None) -> ExecuteJobs:
    stores, rerun = scheduler.stores, Any
    return ExecuteJobs(stores.jobs, stores.flows, stores.cycles, stores.states, rerun, stop, scheduler.clock)  # type: ignore[arg-type]


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


async def test_job_for_running_cycles_passes_over_those_that_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flow may have 10 000 ended cycles, and a step takes 20 ms."""
    monkeypatch.setattr("tradewind.scheduler.use_cases.execute_jobs._PAGE", 20)
    scheduler = MemoryScheduler()
    await scheduler.register(keep_cycles=500)
    begun = [(await scheduler.run()).state for _ in range(402)]
    running = {begun[place].name.cycle for place in (0, 1, 200, 401)}
    await scheduler.fold([event(state) for state in begun if state.name.cycle not in running], NOT_OWNER)
    stopped: list[int] = []

    async def stop(flow_id: str, cycle: int, run: int, *_: Any, **options: Any) -> None:
        stopped.append(cycle)

    stores = scheduler.stores
    wanted = BulkFilter(("f",), (CycleStatus.RUNNING,), 0, 2**50, 1000)
    await stores.jobs.create(replace(JOB, filter=wanted), "")
    execute = executing(scheduler, stop)
    steps = 1
    while await execute.step("job-1"):
        steps += 1
    assert (stopped, steps) == ([401, 200, 1, 0], 4)


async def test_job_passes_over_a_flow_whose_cycles_cannot_be_read() -> None:
    scheduler = MemoryScheduler()
    for flow_id in ("f1", "f2", "f3"):
        await scheduler.register(flow_id)
        await scheduler.run(flow_id)
    stores = scheduler.stores
    outlines = stores.cycles.outlines

    async def outlines_of_some(flow_id: str, below: RunName | None, limit: int) -> list[CycleOutline]:
        if flow_id == "f2":
            raise Unreadable("flow:f2:cycles", "it is of another type")
        return await outlines(flow_id, below, limit)

    stores.cycles.outlines = outlines_of_some  # type: ignore[method-assign]
    wanted = BulkFilter(("f*",), (CycleStatus.RUNNING,), 0, 2**50, 1000)
    await stores.jobs.create(replace(JOB, filter=wanted, dry_run=True), "")
    execute = executing(scheduler)
    with capture_logs() as logs:
        while await execute.step("job-1"):
            pass
    job = await stores.jobs.find("job-1")
    assert job is not None
    assert (job.status, [item.flow_id for item in job.items]) == (BulkStatus.COMPLETED, ["f1", "f3"])
    assert [(line["event"], line["what"]) for line in logs] == [("record_unreadable", "flow:f2:cycles")]


async def test_job_takes_many_cycles_and_flows_in_a_step_as_long_as_nothing_is_to_be_done() -> None:
    scheduler = MemoryScheduler()
    flow_ids = [f"f{at}" for at in range(30)]
    for flow_id in flow_ids:
        await scheduler.register(flow_id, keep_cycles=500)
    begun = [(await scheduler.run("f0")).state for _ in range(402)]
    await scheduler.fold([event(state) for state in begun], NOT_OWNER)
    stores = scheduler.stores
    wanted = BulkFilter(("f*",), (CycleStatus.FAILED,), 0, 2**50, 1000)
    await stores.jobs.create(replace(JOB, filter=wanted), "")
    execute = executing(scheduler)
    steps = 1
    while await execute.step("job-1"):
        steps += 1
    assert steps < 6


async def test_job_finds_a_flow_with_cycles_among_thousands_in_few_reads() -> None:
    scheduler = MemoryScheduler()
    for at in range(2000):
        await scheduler.register(f"f{at:04}")
    await scheduler.run("f1500")
    stores, reads = scheduler.stores, list[int]()
    list_ids = stores.flows.list_ids

    async def counted(after: str, limit: int) -> list[str]:
        reads.append(limit)
        return await list_ids(after, limit)

    stores.flows.list_ids = counted  # type: ignore[method-assign]
    wanted = BulkFilter(("f*",), (CycleStatus.RUNNING,), 0, 2**50, 1000)
    await stores.jobs.create(replace(JOB, filter=wanted, dry_run=True), "")
    execute = executing(scheduler)
    steps = 1
    while await execute.step("job-1"):
        steps += 1
    job = await stores.jobs.find("job-1")
    assert job is not None
    assert [item.flow_id for item in job.items] == ["f1500"]
    assert (steps, len(reads)) == (2, 11)
