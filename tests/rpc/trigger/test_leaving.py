"""What a receiver still hears after it has ended its side."""

import asyncio
from collections.abc import Sequence

from tests.rpc.trigger.queues import QUEUE, save
from tests.rpc.trigger.receiving import Receiver, Replica, once
from tests.waiting import until
from tradewind.api.trigger.v1 import trigger_service_pb2 as pb2
from tradewind.client import Client
from tradewind.server.bootstrap import Server
from tradewind.server.clock import SystemClock
from tradewind.trigger.app import TriggerService
from tradewind.trigger.ports.claims import ClaimOrder, Claims
from tradewind.trigger.ports.stores import Stores
from tradewind.trigger.settings import TriggerSettings
from tradewind.trigger.stores.memory import MemoryTriggerStore
from tradewind.trigger.stores.memory_queues import MemoryQueueStore


class SlowStore(MemoryTriggerStore):
    """Takes its time for claims while `slow` is set."""

    def __init__(self) -> None:
        super().__init__(SystemClock().now_ms)
        self.slow, self.claiming = asyncio.Event(), asyncio.Event()

    async def claim_due(self, orders: Sequence[ClaimOrder]) -> Sequence[Claims]:
        if self.slow.is_set():
            self.claiming.set()
            await asyncio.sleep(1)
        return await super().claim_due(orders)


async def test_last_answer_is_reported_as_lost_although_a_claim_is_under_way() -> None:
    store = SlowStore()
    stores = Stores(store.of_queue, MemoryQueueStore(store), store)
    server = Server([TriggerService(TriggerSettings(), stores=stores)], drain_s=2)
    await server.start()
    replica = Replica(server)
    try:
        receiver = Receiver(replica.stub)
        await receiver.send(receiver="test", queue=QUEUE, credits=2)
        await save(replica, "removed", once(1))
        (due,) = await receiver.wait_for_due()
        await replica.stub.RemoveTrigger(pb2.RemoveTriggerRequest(trigger_id="removed", queue=QUEUE))
        store.slow.set()
        await save(replica, "other", once(1))
        await until(store.claiming.is_set, "another trigger is being claimed")
        await receiver.ack(due)
        await receiver.finish()
        assert receiver.lost == [due.token]
    finally:
        await replica.stop()


async def test_last_answer_is_reported_as_lost_although_a_message_is_under_way() -> None:
    store = MemoryTriggerStore(SystemClock().now_ms)
    stores = Stores(store.of_queue, MemoryQueueStore(store), store)
    server = Server([TriggerService(TriggerSettings(), stores=stores)], drain_s=2)
    await server.start()
    replica = Replica(server)
    try:
        async with Client(server.address) as client:
            await save(replica, "removed", once(1))
            async with client.receive_due(QUEUE, credits=500) as due_triggers:
                due = await anext(due_triggers)
                await replica.stub.RemoveTrigger(pb2.RemoveTriggerRequest(trigger_id="removed", queue=QUEUE))
                # More than gRPC sends to a receiver that does not read.
                for at in range(100):
                    await save(replica, f"large{at}", once(1), payload=f'"{60_000 * "x"}"')
                await asyncio.sleep(0.5)
                await due.ack()
            assert due_triggers.lost(due)
    finally:
        await replica.stop()
