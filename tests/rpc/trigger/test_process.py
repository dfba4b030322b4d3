"""The trigger service as a process of its own: killed, restarted, asked to stop."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator

import grpc
import pytest_asyncio

from tests.rpc.trigger.receiving import ALL, Receiver, every, ms_of, now_ms, once
from tests.servers import RedisServer
from tradewind.api.trigger.v1 import trigger_pb2
from tradewind.api.trigger.v1 import trigger_service_pb2 as pb2
from tradewind.api.trigger.v1 import trigger_service_pb2_grpc as pb2_grpc
from tradewind.server.channels import open_channel
from tradewind.server.partitions import partition_of
from tradewind.trigger.stores.keys import ACL


class Processes:
    """Starts `python -m tradewind.trigger` over one store, and kills what is left at the end."""

    def __init__(self, store: RedisServer) -> None:
        self._store = store
        self._started: list[Process] = []
        self._channels: list[grpc.aio.Channel] = []

    async def start(self, lease_s: float = 60) -> tuple[Process, "pb2_grpc.TriggerServiceAsyncStub"]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tradewind.trigger"),
            env={
                **os.environ,
                "TRADEWIND_PORT": "0",
                "TRADEWIND_LOG_FORMAT": "json",
                "TRADEWIND_STORE_URL": self._store.url(ACL.name),
                "TRADEWIND_TRIGGER_LEASE_SECONDS": str(lease_s),
            },
            stderr=PIPE,
        )
        self._started.append(process)
        assert process.stderr is not None
        async for line in process.stderr:
            entry = json.loads(line)
            if entry["event"] == "serving":
                self._channels.append(open_channel(entry["address"]))
                return process, pb2_grpc.TriggerServiceStub(self._channels[-1])
        raise AssertionError("the process ended without serving")

    async def stop(self) -> None:
        for channel in self._channels:
            await channel.close()
        for process in self._started:
            if process.returncode is None:
                process.kill()
            await process.communicate()


@pytest_asyncio.fixture
async def processes(embedded: RedisServer) -> AsyncIterator[Processes]:
    await embedded.flush()
    processes = Processes(embedded)
    yield processes
    await processes.stop()


async def save(stub: "pb2_grpc.TriggerServiceAsyncStub", id: str, schedule: trigger_pb2.Schedule) -> None:
    trigger = trigger_pb2.Trigger(trigger_id=id, partition_key=id, schedule=schedule, epoch=1)
    await stub.SaveTrigger(pb2.SaveTriggerRequest(trigger=trigger))


async def test_killed_service_loses_no_triggers(processes: Processes) -> None:
    first, stub = await processes.start()
    begun_ms = now_ms()
    await save(stub, "held", every(3_600_000, begun_ms - 1))
    for index in range(20):
        await save(stub, f"later{index}", once(begun_ms + index))
    receiver = Receiver(stub)
    await receiver.subscribe([partition_of("held")], credits=1)
    (held,) = await receiver.wait_for_due()
    first.kill()
    await receiver.wait_for_error()
    await first.wait()

    _, stub = await processes.start()
    again = Receiver(stub)
    await again.subscribe(ALL)
    await again.wait_for_due(21)

    (redelivered,) = [due for due in again.due if due.trigger.trigger_id == "held"]
    assert now_ms() < ms_of(held.lease_deadline)
    assert redelivered.trigger.failures == 0
    assert redelivered.planned_time == held.planned_time
    assert sorted(again.ids) == sorted(["held", *(f"later{index}" for index in range(20))])
    await again.close()


async def test_killed_service_and_scheduler_lose_no_triggers(processes: Processes) -> None:
    """The next scheduler has a higher epoch; it does not wait until the lease of the one before has lapsed."""
    first, stub = await processes.start()
    await save(stub, "held", every(3_600_000, now_ms() - 1))
    receiver = Receiver(stub)
    await receiver.subscribe(ALL)
    (held,) = await receiver.wait_for_due()
    first.kill()
    await receiver.wait_for_error()
    await first.wait()

    _, stub = await processes.start()
    again = Receiver(stub)
    await again.subscribe(ALL, epoch=2)
    (redelivered,) = await again.wait_for_due()
    assert now_ms() < ms_of(held.lease_deadline)
    assert redelivered.planned_time == held.planned_time
    await again.close()


async def test_terminated_service_gives_back_claims_and_exits_with_0(
    processes: Processes,
) -> None:
    first, stub = await processes.start()
    await save(stub, "held", once(now_ms()))
    receiver = Receiver(stub)
    await receiver.subscribe(ALL)
    await receiver.wait_for_due()

    first.terminate()

    assert await asyncio.wait_for(first.wait(), 30) == 0
    _, stub = await processes.start()
    found = (await stub.FindDue(pb2.FindDueRequest())).triggers
    assert [(each.trigger_id, each.failures) for each in found] == [("held", 0)]
    await receiver.close()


async def test_firings_of_a_queue_survive_a_killed_service(processes: Processes) -> None:
    # Long enough for a busy machine to acknowledge the first in time, and the others come again when it has lapsed.
    first, stub = await processes.start(lease_s=6)
    event = trigger_pb2.Schedule(event=trigger_pb2.EventSchedule(name="order"))
    trigger = trigger_pb2.Trigger(trigger_id="job", queue="jobs", schedule=event)
    await stub.SaveTrigger(pb2.SaveTriggerRequest(trigger=trigger))
    receiver = Receiver(stub)
    await receiver.send(queue="jobs", credits=3)
    ids = [f"order-{number}" for number in range(10)]
    for id in ids:
        await stub.PublishEvent(pb2.PublishEventRequest(name="order", event_id=id))
    await receiver.wait_for_due(3)
    await receiver.ack(receiver.due[0])
    await receiver.wait_for_due(4)
    first.kill()
    await receiver.wait_for_error()
    await first.wait()

    _, stub = await processes.start()
    again = Receiver(stub)
    await again.send(queue="jobs")
    await again.wait_for_due(9)

    acknowledged = receiver.due[0].event.event_id
    assert sorted([acknowledged, *(due.event.event_id for due in again.due)]) == ids
    repeated = await stub.PublishEvent(pb2.PublishEventRequest(name="order", event_id=acknowledged))
    assert (repeated.fired, repeated.duplicates) == (0, 1)
    await again.close()
