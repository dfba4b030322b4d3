"""Bulk jobs on record."""

from dataclasses import replace

import pytest

from tests.stores.scheduler.bench import Bench
from tradewind.scheduler.domain.bulk_job import BulkAction, BulkFilter, BulkItem, BulkJob, BulkStatus
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.use_cases.manage_bulk_jobs import ManageBulkJobs
from tradewind.server.faults import Conflict
from tradewind.server.partitions import PARTITIONS, partition_of

DAY = 24 * 3600 * 1000


def job(bench: Bench, job_id: str) -> BulkJob:
    """Return a job as it begins."""
    wanted = BulkFilter(("f*",), (CycleStatus.FAILED,), 0, bench.now, 7)
    return BulkJob(job_id, BulkAction.RERUN, wanted, False, "ann", 'the feed "ü"', bench.now)


async def test_a_job_is_created_once(bench: Bench) -> None:
    first = job(bench, "j1")
    assert await bench.stores.jobs.create(first, "p") == (True, first)
    assert await bench.stores.jobs.create(replace(first, by="bob"), "p") == (False, first)
    assert await bench.stores.jobs.create(first, "q") == (False, None)
    assert await bench.stores.jobs.find("j1") == first
    assert await bench.stores.jobs.find("j2") is None


async def test_request_id_is_bound_to_the_exact_request(bench: Bench) -> None:
    keep = ManageBulkJobs(bench.stores.jobs, lambda work, key, in_ms: None, bench.clock)
    wanted = job(bench, "").filter

    async def start(by: str, reason: str) -> BulkJob:
        return await keep.start(BulkAction.RERUN, wanted, dry_run=False, by=by, reason=reason, request_id="once")

    assert await start("ann", "the feed was late") == await start("ann", "the feed was late")
    with pytest.raises(Conflict):
        await start("ann the", "feed was late")


async def test_job_is_saved_only_over_the_version_that_was_read(bench: Bench) -> None:
    first = job(bench, "j1")
    assert not await bench.stores.jobs.save(first)
    await bench.stores.jobs.create(first, "p")
    further = replace(
        first, matched=2, failed=1, items=(BulkItem("f", 3, 1, "WHY", "words"),), flow_id="f", cycle=3, run=1
    )
    assert await bench.stores.jobs.save(further)
    assert not await bench.stores.jobs.save(first.ended(BulkStatus.CANCELLED, bench.now))
    assert await bench.stores.jobs.find("j1") == replace(further, version=2)


async def test_open_jobs_are_found_by_partition_until_they_end(bench: Bench) -> None:
    first, second = job(bench, "j1"), job(bench, "j2")
    for each in (first, second):
        await bench.stores.jobs.create(each, "p")
    mine = partition_of("j1")
    assert "j1" in await bench.stores.jobs.open([mine])
    assert sorted(await bench.stores.jobs.open(range(PARTITIONS))) == ["j1", "j2"]
    assert await bench.stores.jobs.open([]) == []
    assert await bench.stores.jobs.save(first.ended(BulkStatus.COMPLETED, bench.now))
    assert await bench.stores.jobs.open(range(PARTITIONS)) == ["j2"]
    assert await bench.stores.jobs.save(second.ended(BulkStatus.CANCELLED, bench.now))
    assert await bench.stores.jobs.open(range(PARTITIONS)) == []


async def test_oldest_hundred_open_jobs_of_each_partition_are_found(bench: Bench) -> None:
    names = [f"j{number}" for number in range(3000)]
    first, second = ([name for name in names if partition_of(name) == mine][:101] for mine in (0, 1))
    for name in (*first[1:], *second, first[0]):
        await bench.stores.jobs.create(job(bench, name), "p")
        bench.clock.advance(1)
    assert await bench.stores.jobs.open([0, 1]) == first[1:] + second[:100]


async def test_jobs_are_listed_newest_first_in_pages(bench: Bench) -> None:
    for number in range(5):
        made = job(bench, f"j{number}")
        await bench.stores.jobs.create(made, "p")
        await bench.stores.jobs.save(made.ended(BulkStatus.COMPLETED, bench.now))
        if number % 2:
            bench.clock.advance(1)
    found: list[str] = []
    before = None
    while page := await bench.stores.jobs.newest(before, 2):
        found += [each.job_id for each in page]
        before = (page[-1].created_ms, page[-1].job_id)
    assert found == ["j4", "j3", "j2", "j1", "j0"]
