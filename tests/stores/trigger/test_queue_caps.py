"""What bounds queues, over every store."""

import pytest

from tests.servers import RedisServer
from tests.stores.trigger.bench import PARTITION, memory_store, queue_store, redis_store
from tradewind.server.clock import ManualClock
from tradewind.server.schedules.event_filter import EventFilter
from tradewind.trigger.domain.errors import QueueFull
from tradewind.trigger.domain.event import Event, Outcome
from tradewind.trigger.domain.policy import Policy
from tradewind.trigger.domain.schedule import OnEvent, Schedule
from tradewind.trigger.domain.trigger import TriggerDraft
from tradewind.trigger.ports import FiringOrder

POLICY = Policy(queue_most=2, listeners_most=1, pending_most=1)
LISTENS = Schedule(OnEvent("tick", EventFilter("")))


async def test_a_full_queue_takes_no_further_trigger_but_changes_those_it_has(
    server: RedisServer | None, clock: ManualClock
) -> None:
    if server is not None:
        await server.flush()
    store = memory_store(clock, POLICY) if server is None else redis_store(server, clock, POLICY)
    queues = queue_store(server, store, POLICY)
    queue = store.of_queue("q")
    for id in ("a", "b"):
        await queue.save(PARTITION, TriggerDraft(id, "q", Schedule.once(0)))

    with pytest.raises(QueueFull, match="q"):
        await queue.save(PARTITION, TriggerDraft("c", "q", Schedule.once(0)))
    await queue.save(PARTITION, TriggerDraft("a", "q", LISTENS))
    with pytest.raises(QueueFull, match="listen"):
        await queue.save(PARTITION, TriggerDraft("b", "q", LISTENS))
    order = [FiringOrder(PARTITION, "q", "a")]
    assert await queues.fire(order, Event("e1", "tick")) == [Outcome.FIRED]
    assert await queues.fire(order, Event("e2", "tick")) == [Outcome.FULL]
    assert await queues.fire(order, Event("e1", "tick")) == [Outcome.DUPLICATE]
    await queue.remove(PARTITION, "b", 0)
    await queue.save(PARTITION, TriggerDraft("c", "q", Schedule.once(0)))
    if server is not None:
        await server.close_clients()
