"""Two replicas: a request to one replica that the other must act on does not wait for the other's next check."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest_asyncio

from tests.rpc.scheduler.conftest import Client, Peers, Start
from tests.rpc.scheduler.test_backfills import backfill_request
from tests.rpc.scheduler.test_on_events import Stage, finished
from tests.rpc.scheduler.test_schedule import answered
from tests.servers import RedisServer
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import component_pb2, node_task_pb2
from tradewind.api.scheduler.v1 import cycle_pb2, flow_pb2, job_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.api.trigger.v1 import trigger_pb2
from tradewind.api.trigger.v1 import trigger_service_pb2 as trigger_pb2_service
from tradewind.api.trigger.v1 import trigger_service_pb2_grpc as trigger_grpc
from tradewind.scheduler.domain.event_schedule import FLOW_FINISHED
from tradewind.server.bootstrap import Server
from tradewind.server.channels import open_channel
from tradewind.server.partitions import PARTITIONS, partition_of
from tradewind.trigger.app import TriggerService
from tradewind.trigger.settings import TriggerSettings

SOON_S = 20.0
"""Replicas are told within this time. No check comes during a test."""
LATE = {"scheduler_poll_seconds": 600, "scheduler_listeners_seconds": 600, "scheduler_check_in_seconds": 600}


def name_owned_by(owner: Client) -> str:
    """Return a flow, or a name of something else with a partition, that this replica owns."""
    return next(each for at in range(1000) if owner.service._ownership.owns(partition_of(each := f"f{at}")))


async def wait_until_shared(*replicas: Client) -> None:
    """Wait until each replica owns its share."""
    share = PARTITIONS // len(replicas)
    await until(lambda: all(len(each.service._ownership.epochs) == share for each in replicas), "they share")


@pytest_asyncio.fixture
async def pair(start: Start) -> tuple[Client, Client]:
    """Two schedulers over one store."""
    here, there = await start(**LATE), await start(**LATE)
    await wait_until_shared(here, there)
    return here, there


@pytest_asyncio.fixture
async def stages(start: Start, embedded: RedisServer) -> AsyncIterator[tuple[Stage, Stage]]:
    """Two schedulers, each with a trigger service of its own, all over one store."""
    async with AsyncExitStack() as stack:
        stages = []
        for _ in range(2):
            settings = TriggerSettings(store_url=embedded.url("trigger"), trigger_poll_seconds=600)
            server = Server([TriggerService(settings)], drain_s=1)
            await server.start()
            stack.push_async_callback(server.stop)
            channel = open_channel(server.address)
            stack.push_async_callback(channel.close)
            scheduler = await start(trigger_address=server.address, **LATE)
            stages.append(Stage(scheduler, trigger_grpc.TriggerServiceStub(channel)))
        first, second = stages
        await wait_until_shared(first.scheduler, second.scheduler)
        await until(lambda: not any(each.scheduler.service.publishes_ends for each in stages), "no listener is known")
        yield first, second


async def test_end_of_a_flow_begins_a_flow_started_on_another_replica(stages: tuple[Stage, Stage]) -> None:
    here, there = stages
    before = name_owned_by(there.scheduler)
    await here.scheduler.register(before)
    await here.register("report", finished(before))
    await here.start("report")
    await until(lambda: there.scheduler.service.publishes_ends, "the other scheduler knows of a listener", SOON_S)
    ended = await here.scheduler.run(before)
    await until(lambda: there.firings("report"), "the end has begun a cycle", SOON_S)
    assert await there.firings("report") == [(ended.run_id, "fired", 0)]


async def test_any_trigger_on_ends_makes_every_scheduler_report_ends(stages: tuple[Stage, Stage]) -> None:
    here, there = stages
    event = trigger_pb2.EventSchedule(name=FLOW_FINISHED)
    trigger = trigger_pb2.Trigger(trigger_id="t", queue="q", schedule=trigger_pb2.Schedule(event=event))
    await here.triggers.SaveTrigger(trigger_pb2_service.SaveTriggerRequest(trigger=trigger))
    for each in (here, there):
        await until(lambda each=each: each.scheduler.service.publishes_ends, "it knows of a listener", SOON_S)


async def test_bulk_job_begins_at_once(pair: tuple[Client, Client]) -> None:
    here, there = pair

    def job_id(request_id: str) -> str:
        return f"job-{hashlib.sha256(request_id.encode()).hexdigest()[:16]}"

    request_id = next(str(at) for at in range(1000) if there.service._ownership.owns(partition_of(job_id(str(at)))))
    request = job_pb2.StartBulkJobRequest(action=job_pb2.BULK_ACTION_STOP, request_id=request_id, by="ada")
    request.filter.flow_ids.append("*")
    job = (await here.stub.StartBulkJob(request)).job
    assert job.job_id == job_id(request_id)

    async def over() -> bool:
        found = await here.stub.GetBulkJob(job_pb2.GetBulkJobRequest(job_id=job.job_id))
        return found.job.status == job_pb2.BULK_JOB_STATUS_COMPLETED

    await until(over, "the job is done", SOON_S)


async def test_cycle_and_its_rerun_time_out_promptly(pair: tuple[Client, Client], peers: Peers) -> None:
    here, there = pair
    peers.node_tasks.automatic = False
    flow_id = name_owned_by(there)
    await here.register(flow_id, timeout="300ms")
    cycle = await here.run(flow_id)
    stopped = node_task_pb2.NodeTask(node_id="a", run_id=cycle.run_id, status=node_task_pb2.NODE_TASK_STATUS_TERMINATED)
    peers.node_tasks.nodes[flow_id, 0, 0] = [stopped]
    again = pb2.RerunCycleRequest(flow_id=flow_id)
    again.wait.FromSeconds(10)
    for each in (cycle, (await here.stub.RerunCycle(again)).cycle):
        assert each.status == cycle_pb2.CYCLE_STATUS_TIMEOUT
        took_ms = each.end_time.ToMilliseconds() - each.start_time.ToMilliseconds()
        assert 300 <= took_ms < 1000 * SOON_S


async def test_refused_submission_is_retried_promptly(pair: tuple[Client, Client], peers: Peers) -> None:
    here, there = pair
    flow_id = name_owned_by(there)
    await here.register(flow_id)
    refusal = component_pb2.SubmitResult(outcome=component_pb2.SUBMIT_OUTCOME_REFUSED, reason="QUEUE_FULL")
    peers.node_tasks.refusals = [refusal]
    cycle = await here.run(flow_id)
    assert cycle.status == cycle_pb2.CYCLE_STATUS_COMPLETED
    # The submission is retried after a second.
    assert cycle.end_time.ToMilliseconds() - cycle.start_time.ToMilliseconds() < 1000 * (1 + SOON_S)


async def test_failed_save_of_a_trigger_is_retried_promptly(pair: tuple[Client, Client], peers: Peers) -> None:
    here, there = pair
    flow_id = name_owned_by(there)
    await here.register(flow_id)
    peers.triggers.down = True
    await here.start(flow_id)
    peers.triggers.down = False
    # Saving is retried after a second.
    await until(lambda: flow_id in peers.triggers.triggers, "the trigger is saved", 1 + SOON_S)


async def test_backfill_continues_when_its_flow_is_resumed(pair: tuple[Client, Client], peers: Peers) -> None:
    here, there = pair
    flow_id = name_owned_by(there)
    await here.register(flow_id, interval="1h")
    await here.start(flow_id)
    await here.stub.PauseFlow(pb2.PauseFlowRequest(flow_id=flow_id))
    request = backfill_request(1)
    request.flow_id = flow_id
    await here.stub.BackfillFlow(request)
    assert peers.node_tasks.runs == {}
    await here.stub.ResumeFlow(pb2.ResumeFlowRequest(flow_id=flow_id))
    await until(lambda: peers.node_tasks.runs, "its cycle has begun", SOON_S)


async def test_waiting_cycles_begin_when_their_flow_is_updated_to_overlap_allow(
    pair: tuple[Client, Client], peers: Peers
) -> None:
    here, there = pair
    peers.node_tasks.automatic = False
    flow_id = name_owned_by(there)
    await here.register(flow_id, overlap=flow_pb2.OVERLAP_POLICY_QUEUE_ALL)
    planned_ms = (await here.start(flow_id)).next_execution.ToMilliseconds()
    for at in range(3):
        (token,) = peers.triggers.fire([flow_id], planned_ms + at * 60_000)
        await answered(peers, token)
    assert (await here.flow(flow_id)).last_cycle == 0
    await here.register(flow_id, overlap=flow_pb2.OVERLAP_POLICY_ALLOW)

    async def has_begun() -> bool:
        return (await here.flow(flow_id)).last_cycle == 2

    await until(has_begun, "the waiting cycles have begun", SOON_S)
