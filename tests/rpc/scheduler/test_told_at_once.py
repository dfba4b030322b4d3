"""Two replicas: what one of them is asked for, and the other has to do, does not wait for a look of the other."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest_asyncio

from tests.rpc.scheduler.conftest import Client, Start
from tests.rpc.scheduler.test_on_events import Stage, finished
from tests.servers import RedisServer
from tests.waiting import until
from tradewind.api.trigger.v1 import trigger_pb2
from tradewind.api.trigger.v1 import trigger_service_pb2 as trigger_pb2_service
from tradewind.api.trigger.v1 import trigger_service_pb2_grpc as trigger_grpc
from tradewind.scheduler.domain.event_schedule import FLOW_FINISHED
from tradewind.server.bootstrap import Server
from tradewind.server.channels import open_channel
from tradewind.server.partitions import PARTITIONS, partition_of
from tradewind.trigger.app import TriggerService
from tradewind.trigger.settings import TriggerSettings

SOON_S = 2.0
"""What is told comes sooner. Nobody looks within a test."""
LATE = {"scheduler_look_seconds": 600, "scheduler_listeners_seconds": 600}


def of(owner: Client, name: str = "f") -> str:
    """A flow, or whatever else has a partition, that this replica owns."""
    return next(each for at in range(1000) if owner.service._own.owns(partition_of(each := f"{name}{at}")))


async def share(*replicas: Client) -> None:
    """Wait until each of them owns its share."""
    share = PARTITIONS // len(replicas)
    await until(lambda: all(len(each.service._own.epochs) == share for each in replicas), "they share")


@pytest_asyncio.fixture
async def stages(start: Start, embedded: RedisServer) -> AsyncIterator[tuple[Stage, Stage]]:
    """Two schedulers, each with a trigger service of its own, all over one store."""
    async with AsyncExitStack() as stack:
        stages = []
        for _ in range(2):
            server = Server([TriggerService(TriggerSettings(store_url=embedded.url("trigger")))], drain_s=1)
            await server.start()
            stack.push_async_callback(server.stop)
            channel = open_channel(server.address)
            stack.push_async_callback(channel.close)
            scheduler = await start(trigger_address=server.address, **LATE)
            stages.append(Stage(scheduler, trigger_grpc.TriggerServiceStub(channel)))
        first, second = stages
        await share(first.scheduler, second.scheduler)
        await until(lambda: not any(each.scheduler.service.tells_ends for each in stages), "nobody is known to listen")
        yield first, second


async def test_the_end_of_a_flow_begins_another_that_was_started_elsewhere(stages: tuple[Stage, Stage]) -> None:
    here, there = stages
    before = of(there.scheduler)
    await here.scheduler.register(before)
    await here.register("report", finished(before))
    await here.start("report")
    await until(lambda: there.scheduler.service.tells_ends, "the other one hears of it", SOON_S)
    ended = await here.scheduler.run(before)
    await until(lambda: there.firings("report"), "the end has begun a cycle", SOON_S)
    assert await there.firings("report") == [(ended.run_id, "fired", 0)]


async def test_a_trigger_of_anybody_for_ends_is_told_to_every_scheduler(stages: tuple[Stage, Stage]) -> None:
    here, there = stages
    event = trigger_pb2.EventSchedule(name=FLOW_FINISHED)
    trigger = trigger_pb2.Trigger(trigger_id="t", queue="q", schedule=trigger_pb2.Schedule(event=event))
    await here.triggers.SaveTrigger(trigger_pb2_service.SaveTriggerRequest(trigger=trigger))
    for each in (here, there):
        await until(lambda each=each: each.scheduler.service.tells_ends, "it hears of it", SOON_S)
