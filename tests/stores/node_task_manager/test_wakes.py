"""Whatever makes a node task possible wakes the processes that may run it: none has to look in case it was not told.

The stores may be right and still say nothing, which comparing them cannot show. So a process beside the random actor
claims all it can get, and from then on must get nothing of a type until news of that type has come, or its own alarm
has rung.
"""

import random

import pytest

from tests.servers import RedisServer
from tests.stores.machines import HISTORIES
from tests.stores.node_task_manager.random_plans import TASK_PLANS, TYPES, random_plan
from tests.stores.node_task_manager.shards import memory_shard, redis_shard
from tests.stores.node_task_manager.test_same import CUT, WHOLE
from tests.stores.node_task_manager.world import World
from tests.waiting import until
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.ports.work import Effects, Vacancy
from tradewind.node_task_manager.stores.keys import Keys
from tradewind.server.clock import ManualClock
from tradewind.server.redis.client import Client
from tradewind.server.redis.subscriber import Subscriber

STEPS = 60
CHANNEL = Keys("trading_flow", 0).wake


class News:
    """Which node types processes are told of."""

    def __init__(self, subscriber: Subscriber, client: Client) -> None:
        self._subscriber = subscriber
        self._client = client
        self._received: list[str] = []
        self._marks = 0

    async def listen(self) -> None:
        await self._subscriber.subscribe(CHANNEL, lambda _, message: self._received.append(message.decode()))

    async def take(self) -> set[str]:
        """Return the types that were named since the last call."""
        self._marks += 1
        mark = f"mark:{self._marks}"
        await self._client.publish(CHANNEL, mark)
        await until(lambda: mark in self._received, "all news has come")
        received, self._received = self._received, []
        return set(TYPES).intersection(received)


class Claimer:
    """A process with room for everything; `expected` are the types of which it may get node tasks."""

    def __init__(self, world: World, clock: ManualClock) -> None:
        self._world = world
        self._clock = clock
        self._rings_at: int | None = None
        self.expected = set(TYPES)

    async def claim(self, after: str) -> None:
        """Claim all there is, first of the types that it has not been told of."""
        if self._rings_at is not None and self._rings_at <= self._clock():
            self.expected = set(TYPES)
        told, self.expected, self._rings_at = self.expected, set(), None
        for node_type in sorted(TYPES, key=lambda name: name in told):
            while True:
                effects = (await self._world.call_both("claim", ([Vacancy("other", 0, 1000, (node_type,))],)))[0]
                self._note(effects)
                if not effects.assignments:
                    break
                ids = [each.task_id for each in effects.assignments]
                assert node_type in told, f"after {after!r}, nobody was told that {ids} can begin"

    def _note(self, effects: Effects) -> None:
        self.expected.update(effects.ready_types)
        if effects.due_in >= 0:
            rings_at = self._clock() + effects.due_in
            self._rings_at = rings_at if self._rings_at is None else min(self._rings_at, rings_at)


async def live(server: RedisServer, seed: int, limits: Limits) -> None:
    await server.flush()
    rng, clock = random.Random(seed), ManualClock()
    plans = {
        plan.digest: plan for plan in (random_plan(rng, at, lasting=limits is CUT) for at in range(4))
    } | TASK_PLANS
    memory, redis = memory_shard(clock, limits), redis_shard(server, clock, limits)
    world = World(rng, clock, memory, redis, plans, cut=limits is CUT)
    for plan in plans.values():
        await memory.save(plan)
        await redis.save(plan)
    claimer, subscriber = Claimer(world, clock), Subscriber(server.url())
    subscriber.start()
    news = News(subscriber, server.connect())
    try:
        await news.listen()
        if seed % 2:
            # Later, limits change seldom enough to be reached.
            await world.configure()
        for _ in range(STEPS):
            acted = await world.act()
            # Whoever acts sees to what is due itself.
            await world.call_both("claim", ((),))
            claimer.expected |= set(TYPES) if acted == "configure" else await news.take()
            await claimer.claim(acted)
            claimer.expected |= await news.take()
    finally:
        await subscriber.stop()
        await server.close_clients()


@pytest.mark.parametrize("limits", [WHOLE, CUT], ids=["whole", "cut"])
@pytest.mark.parametrize("first", range(19, 19 + 6 * HISTORIES, 3))
async def test_who_has_room_is_told_of_all_that_can_begin(embedded: RedisServer, first: int, limits: Limits) -> None:
    for seed in range(first, first + 3):
        await live(embedded, seed, limits)
