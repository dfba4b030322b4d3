"""Bulk jobs: which cycles they change, when they are done, and how they are listed."""

from tests.rpc.scheduler.conftest import Client, Peers
from tests.waiting import until
from tradewind.api.scheduler.v1 import job_pb2 as pb2


async def started(scheduler: Client, *flow_ids: str) -> pb2.BulkJob:
    """Begin to stop the cycles of these flows."""
    request = pb2.StartBulkJobRequest(action=pb2.BULK_ACTION_STOP, by="ada", reason="wrong day")
    request.filter.flow_ids.extend(flow_ids)
    return (await scheduler.stub.StartBulkJob(request)).job


async def ended(scheduler: Client, job: pb2.BulkJob) -> pb2.BulkJob:
    """Wait until a job has ended."""
    found = [job]

    async def over() -> bool:
        found[:] = [(await scheduler.stub.GetBulkJob(pb2.GetBulkJobRequest(job_id=job.job_id))).job]
        return found[0].status != pb2.BULK_JOB_STATUS_RUNNING

    await until(over, f"{job.job_id} has ended")
    return found[0]


async def test_job_is_done_when_it_has_seen_the_cycles_of_all_its_flows(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    for flow_id in ("a1", "a2", "b"):
        await scheduler.register(flow_id)
        for _ in range(2):
            await scheduler.run(flow_id, wait=0)
    job = await ended(scheduler, await started(scheduler, "a*", "none"))
    assert job.status == pb2.BULK_JOB_STATUS_COMPLETED
    assert (job.matched, job.done, job.failed) == (4, 4, 0)
    for flow_id, stopping in (("a1", True), ("a2", True), ("b", False)):
        for number in range(2):
            assert (await scheduler.cycle(flow_id, cycle=number)).HasField("stop") is stopping


async def test_jobs_are_listed_in_pages_the_newest_first(scheduler: Client) -> None:
    made = [await started(scheduler, f"f{number}") for number in range(5)]
    newest = sorted(made, key=lambda job: (job.created_at.ToMilliseconds(), job.job_id), reverse=True)
    pages: list[list[str]] = []
    token = ""
    while not pages or token:
        page = await scheduler.stub.ListBulkJobs(pb2.ListBulkJobsRequest(page_size=2, page_token=token))
        pages.append([job.job_id for job in page.jobs])
        token = page.next_page_token
    assert [len(page) for page in pages] == [2, 2, 1]
    assert [job_id for page in pages for job_id in page] == [job.job_id for job in newest]
