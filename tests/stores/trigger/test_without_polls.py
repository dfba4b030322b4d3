"""Whatever makes a trigger due reaches a receiver that has room, although no process ever polls.

In production a lost wake costs the seconds until the next poll, and comparing stores cannot show it. So replicas that
never poll live through random changes, with receivers that answer late, leave, or are killed. From time to time these
answer all they hold, and from then on what is due must come.
"""

import asyncio
import random
import time
from contextlib import suppress
from functools import partial

import pytest

from tests.servers import RedisServer
from tests.stores.machines import HISTORIES
from tests.waiting import until
from tradewind.server.clock import ScriptTime
from tradewind.server.faults import Fault
from tradewind.server.partitions import partition_of
from tradewind.server.redis.client import Client
from tradewind.server.redis.subscriber import Subscriber
from tradewind.server.schedules.event_filter import EventFilter
from tradewind.server.schedules.grids import IntervalGrid
from tradewind.trigger.domain.claim import Ack, DueTrigger, Extension, Nack
from tradewind.trigger.domain.policy import Policy
from tradewind.trigger.domain.schedule import Delay, Kind, Once, OnEvent, Schedule
from tradewind.trigger.domain.trigger import TriggerDraft, TriggerStatus
from tradewind.trigger.stores.keys import ACL, Keys
from tradewind.trigger.stores.redis import RedisTriggerStore
from tradewind.trigger.stores.redis_queues import RedisQueueStore
from tradewind.trigger.stores.redis_wakes import RedisWakeChannel
from tradewind.trigger.use_cases.change_triggers import ChangeTriggers
from tradewind.trigger.use_cases.deliver_due import Delivery
from tradewind.trigger.use_cases.held_claims import token_of
from tradewind.trigger.use_cases.open_deliveries import OpenDeliveries
from tradewind.trigger.use_cases.parcel import Opening
from tradewind.trigger.use_cases.publish_event import PublishEvent
from tradewind.trigger.use_cases.receivers import QueueReceivers
from tradewind.trigger.use_cases.save_trigger import SaveTrigger

LEASES_MS = (40, 3_600_000)
"""Short ones, so that the claims of killed receivers lapse, or such that only what is told moves anything."""
NEVER_S = 1e6
ROUNDS, MAX_STEPS = 40, 4
"""Few steps in a round: with many, there is nearly always something that comes at its time and brings the rest."""
ACTS, KILL = 11, 9
IDS = ("a", "b")
QUEUES = ("", "q", "r")
"""The queues in which triggers are; the first one is that of the flows."""
FLOW = "flow"


def partition(queue: str) -> int:
    return partition_of(queue or FLOW)


class Replica:
    """A process of the trigger service that never polls."""

    def __init__(self, server: RedisServer, lease_ms: int) -> None:
        client, keys = server.connect(ACL.name), Keys()
        policy = Policy(lease_ms=lease_ms, max_failures=2, backoff_initial_ms=10, max_pending=3)
        store = RedisTriggerStore(client, keys, ScriptTime(), policy)
        queues = RedisQueueStore(client, keys, ScriptTime(), policy)
        self._subscriber = Subscriber(server.url(ACL.name))
        self._channel = RedisWakeChannel(self._subscriber, keys)
        self.receivers = QueueReceivers()
        self.store_of = store.of_queue
        self.save = SaveTrigger(self.store_of, self.receivers)
        self.change = ChangeTriggers(self.store_of, queues, self.receivers)
        self.publish = PublishEvent(queues, self.receivers)
        self.deliveries = OpenDeliveries(self.store_of, self.receivers, lease_ms, poll_s=NEVER_S)

    async def start(self) -> None:
        self._subscriber.start()
        await self._channel.listen(self.receivers.notify, lambda: None)

    async def stop(self) -> None:
        await self.receivers.settle()
        await self._subscriber.stop()


class Receiver:
    """Receives what is due in a queue and answers at its leisure, or at once while it is `eager`."""

    def __init__(self, rng: random.Random, replica: Replica, queue: str, delivery: Delivery) -> None:
        self.queue = queue
        self.eager = False
        self._refusals = rng.choice([0.1, 0.7])
        self._rng = rng
        self._replica = replica
        self._delivery = delivery
        self._held: list[DueTrigger] = []
        self._task = asyncio.create_task(self._run())

    @classmethod
    async def open(cls, rng: random.Random, replica: Replica, queue: str, epoch: int) -> "Receiver":
        """Open a stream; of those that receive for the flows, only the last one still gets anything."""
        delivery = replica.deliveries.open(Opening(rng.randint(1, 3), queue))
        if queue:
            await delivery.share(partition(queue))
        else:
            await delivery.subscribe([(partition(queue), epoch)])
        return cls(rng, replica, queue, delivery)

    async def answer_all(self) -> None:
        held, self._held = self._held, []
        for each in held:
            await self._answer(each)

    async def close(self) -> None:
        """Leave as a receiver does whose stream ends: its claims are given back."""
        await self._end()
        self._delivery.close()

    async def kill(self) -> None:
        """Leave as a killed process does: its claims lapse."""
        await self._end()
        self._replica.receivers.of(self.queue).remove(self._delivery)

    async def _end(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        while True:
            parcel = await self._delivery.next()
            self._held += parcel.due
            if self.eager:
                await self.answer_all()

    async def _answer(self, due: DueTrigger) -> None:
        token = token_of(due)
        if self._rng.random() < self._refusals:
            await self._delivery.answer((), [self._rng.choice([Nack(token), Nack(token, 5, postponed=True)])], ())
            return
        if self._rng.random() < 0.2:
            await self._delivery.answer((), (), [Extension(token, 30)])
        await self._delivery.answer([Ack(token, finished=self._rng.random() < 0.2)], (), ())


class World:
    """Two replicas, and the receivers that have streams to them."""

    def __init__(self, rng: random.Random, admin: Client, replicas: list[Replica], *, killing: bool) -> None:
        self._admin = admin
        self._rng = rng
        self._replicas = replicas
        self._receivers: list[Receiver] = []
        self._epoch = 0
        self._queues = rng.sample(QUEUES, rng.randint(1, 2))
        # Each life has its own habits: with all of them at once, little would happen twice to one trigger.
        self._habits = [rng.random() for _ in range(ACTS)]
        if not killing:
            self._habits[KILL] = 0

    async def act(self) -> None:
        """Do something that is possible for a client or a receiver, or refused."""
        rng, replica = self._rng, self._rng.choice(self._replicas)
        queue, id = rng.choice(self._queues), rng.choice(IDS)
        with suppress(Fault):
            match rng.choices(range(ACTS), self._habits)[0]:
                case 0:
                    await replica.save(TriggerDraft(id, FLOW, Schedule(self._kind()), "{}"), queue)
                case 1:
                    await replica.change.remove(id, FLOW, 0, queue)
                case 2 if queue:
                    await replica.change.pause(queue, id, "")
                case 3 if queue:
                    await replica.change.resume(queue, await self._one_in(queue, TriggerStatus.PAUSED))
                case 4 if queue:
                    await replica.change.fire(queue, id, "", "")
                case 5:
                    await replica.change.redrive(queue, FLOW, await self._one_in(queue, TriggerStatus.DEAD), "")
                case 6:
                    await replica.publish("tick", "{}", {}, "")
                case 7:
                    await self._open(queue)
                case 8 if self._receivers:
                    await self._receivers.pop(rng.randrange(len(self._receivers))).close()
                case 9 if self._receivers:
                    await self._receivers.pop(rng.randrange(len(self._receivers))).kill()
                case _ if self._receivers:
                    await rng.choice(self._receivers).answer_all()
        await asyncio.sleep(rng.choice([0, 0, 0, 0.002, 0.02]))

    async def man(self) -> None:
        """Let two receivers be there for each queue, and one for the flows."""
        for queue in self._queues:
            for _ in range(self._receivers_of(queue), 2 if queue else 1):
                await self._open(queue)

    async def settle(self) -> None:
        """Let all receivers answer what they hold, and wait until all that is due by now has been answered."""
        for queue in self._queues:
            if not self._receivers_of(queue):
                await self._open(queue)
        for each in self._receivers:
            each.eager = True
            await each.answer_all()
        now_ms = time.time_ns() // 1_000_000
        for queue in self._queues:
            await until(partial(self._has_come, queue, now_ms), f'what was due in queue "{queue}" has come', 5)
        for each in self._receivers:
            each.eager = False

    async def end(self) -> None:
        for each in self._receivers:
            await each.close()

    def _receivers_of(self, queue: str) -> int:
        return sum(each.queue == queue for each in self._receivers)

    async def _one_in(self, queue: str, status: TriggerStatus) -> str:
        """Return the id of a trigger in the status, if there is one."""
        store = self._replicas[0].store_of(queue)
        for id in IDS:
            trigger = await store.find(partition(queue), id)
            if trigger is not None and trigger.status is status:
                return id
        return IDS[0]

    async def _has_come(self, queue: str, by_ms: int) -> bool:
        """Say whether nothing is left that was due, or held by a lease, until then."""
        keys, at = Keys().of_queue(queue), partition(queue)
        indexes = keys.due(at), keys.claimed(at)
        return not any([await self._admin.execute_command("ZCOUNT", index, 0, by_ms) for index in indexes])

    async def _open(self, queue: str) -> None:
        self._epoch += 1
        # The owner of a partition is one replica of the scheduler.
        former = [each for each in self._receivers if not queue and not each.queue]
        replica = self._rng.choice(self._replicas)
        self._receivers.append(await Receiver.open(self._rng, replica, queue, self._epoch))
        for each in former:
            self._receivers.remove(each)
            await each.close()

    def _kind(self) -> Kind:
        rng, now_ms = self._rng, time.time_ns() // 1_000_000
        kinds: list[Kind] = [
            Once(now_ms + rng.choice([-10, 5, 100])),
            IntervalGrid(3_600_000, now_ms),
            Delay(rng.choice([0, 10, 100])),
            OnEvent("tick", EventFilter("")),
        ]
        return rng.choice(kinds)


async def live(server: RedisServer, seed: int) -> None:
    await server.flush()
    rng, lease_ms = random.Random(seed), LEASES_MS[seed % 2]
    replicas = [Replica(server, lease_ms), Replica(server, lease_ms)]
    world = World(rng, server.connect(), replicas, killing=lease_ms == min(LEASES_MS))
    try:
        for replica in replicas:
            await replica.start()
        for _ in range(ROUNDS):
            await world.man()
            for _ in range(rng.randint(1, MAX_STEPS)):
                await world.act()
            await world.settle()
        await world.end()
    finally:
        for replica in replicas:
            await replica.stop()
        await server.close_clients()


@pytest.mark.parametrize("first", range(0, 12 * HISTORIES, 3))
async def test_what_is_due_comes_without_polls(embedded: RedisServer, first: int) -> None:
    for seed in range(first, first + 3):
        await live(embedded, seed)
