"""Clients that open streams and do not read them: the stack serves all others, and has the news when they read."""

import asyncio
from typing import Any

import grpc

from tests.system.processes import NODES
from tradewind.api.node_task_manager.v1 import notification_pb2, work_pb2
from tradewind.api.node_task_manager.v1.node_task_manager_service_pb2_grpc import NodeTaskManagerServiceStub
from tradewind.api.registry.v1 import registry_service_pb2, worker_pb2
from tradewind.api.registry.v1.registry_service_pb2_grpc import RegistryServiceStub
from tradewind.api.scheduler.v1 import cycle_pb2, scheduler_service_pb2
from tradewind.api.scheduler.v1.scheduler_service_pb2_grpc import SchedulerServiceStub
from tradewind.api.trigger.v1 import trigger_service_pb2
from tradewind.api.trigger.v1.trigger_service_pb2_grpc import TriggerServiceStub
from tradewind.client import Client, RunRequest, TradewindError
from tradewind.flow import Flow
from tradewind.server.channels import open_channel
from tradewind.standalone import Standalone
from tradewind.worker import Worker, load_nodes

RUNS = 120
LARGE = "x" * 40_000
SILENT = worker_pb2.Worker(worker_id="silent", incarnation="one", node_types=["none"], capacity=5)


async def open_unread_streams(channel: grpc.aio.Channel) -> list[Any]:
    """Open one stream of each kind that somebody may forget to read, and send much on those that accept messages."""
    await RegistryServiceStub(channel).RegisterWorker(registry_service_pb2.RegisterWorkerRequest(worker=SILENT))
    manager = NodeTaskManagerServiceStub(channel)
    work, due = manager.Work(), TriggerServiceStub(channel).ReceiveDue()
    hello = work_pb2.WorkerHello(worker_id="silent", incarnation="one", node_types=["none"], capacity=5)
    await work.write(work_pb2.WorkRequest(sequence=1, hello=hello))
    await due.write(trigger_service_pb2.ReceiveDueRequest(receiver="silent", queue="silent", credits=10))
    leases = [f"0~task:none{place}~1~none" for place in range(500)]
    acks = [trigger_service_pb2.DueTriggerAck(token=f"none{place}") for place in range(500)]
    for _ in range(10):
        await work.write(work_pb2.WorkRequest(sequence=2, renew=True, held_tokens=leases))
        await due.write(trigger_service_pb2.ReceiveDueRequest(acks=acks))
    notices = notification_pb2.WatchNotificationsRequest(user_id="default")
    watch = scheduler_service_pb2.WatchFlowRequest(flow_ids=["large"])
    return [
        SchedulerServiceStub(channel).WatchFlow(watch),
        manager.WatchNotifications(notices),
        work,
        due,
    ]


async def test_unread_streams_do_not_hold_up_other_clients(stack: Standalone) -> None:
    flow = Flow("large", "1h", overlap="allow", keep_cycles=1000)
    flow.node("keep", "keep")
    async with (
        Worker(load_nodes(NODES), address=stack.address),
        Client(stack.address) as client,
        open_channel(stack.address, traced=False) as channel,
    ):
        await client.register_flow("large", flow)
        await (await client.run_flow("large", {"value": 0})).result(60)
        silent = await open_unread_streams(channel)
        # The watch reports the latest cycle at once; from here on it reports everything.
        await silent[0].read()
        begun = await client.run_flows([RunRequest("large", {"value": LARGE})] * RUNS, wait=60)
        cycles = [cycle for cycle in begun if not isinstance(cycle, TradewindError)]
        assert len(cycles) == RUNS
        for cycle in (cycles[0], cycles[-1]):
            assert (await cycle.result(60))["keep"] == {"kept": LARGE}
        assert await (await client.submit_task("keep", {"value": 1})).result(60) == {"kept": 1}
        assert not any(call.done() for call in silent)

        # Five megabytes are reported of these cycles: more than an unread stream can hold.
        last: dict[int, int] = {}
        async with asyncio.timeout(60):
            while set(last.values()) != {cycle_pb2.CYCLE_STATUS_COMPLETED} or len(last) < RUNS:
                response = await silent[0].read()
                assert response.ByteSize() < 1024 * 1024
                last.update((event.cycle.cycle, event.cycle.status) for event in response.events)
        for call in silent:
            call.cancel()
