"""QueueStore in memory, its executable specification: all that can be done with triggers apart from delivering them."""

from collections.abc import Sequence
from dataclasses import replace

from tradewind.trigger.domain.claim import Firing
from tradewind.trigger.domain.event import Event, Outcome, firing_id, trigger_of
from tradewind.trigger.domain.schedule import Schedule
from tradewind.trigger.domain.trigger import Trigger, TriggerStatus
from tradewind.trigger.ports.queues import Counts, FiringOrder, Listener, Swept
from tradewind.trigger.ports.triggers import Page, Position
from tradewind.trigger.stores.memory import MemoryTriggerStore
from tradewind.trigger.stores.memory_lanes import Entry, Lane, page_of

SCHEDULED, CLAIMED, PAUSED = TriggerStatus.SCHEDULED, TriggerStatus.CLAIMED, TriggerStatus.PAUSED
COMPLETED, DEAD, WAITING = TriggerStatus.COMPLETED, TriggerStatus.DEAD, TriggerStatus.WAITING

_STATUS = {"due": SCHEDULED, "claimed": CLAIMED, "dead": DEAD}


class MemoryQueueStore:
    """QueueStore over the triggers of a MemoryTriggerStore; its indexes are never wrong."""

    def __init__(self, triggers: MemoryTriggerStore) -> None:
        self._triggers = triggers

    async def page_all(self, partition: int, queue: str, after: Position | None, limit: int) -> Page:
        _, lane = self._lane(partition, queue)
        listed = [entry for entry in lane.entries.values() if queue and entry.trigger.event is None]
        placed = [replace(entry, place_ms=entry.trigger.created_at_ms) for entry in listed]
        return page_of(sorted(placed, key=lambda entry: (entry.place_ms, entry.trigger.id)), after, limit)

    async def page_dead(self, partition: int, queue: str, after: Position | None, limit: int) -> Page:
        _, lane = self._lane(partition, queue)
        return page_of(lane.index(DEAD), after, limit)

    async def pause(self, partition: int, queue: str, trigger_id: str, note: str) -> Trigger | None:
        _, lane = self._lane(partition, queue)
        entry = lane.entries.get(trigger_id)
        if entry is None:
            return None
        if entry.trigger.status in (SCHEDULED, WAITING):
            entry = entry.to(PAUSED, entry.place_ms)
        if entry.trigger.status in (PAUSED, CLAIMED):
            lane.change(entry, paused=True, pause_note=note)
        return lane.entries[trigger_id].trigger

    async def resume(
        self, partition: int, queue: str, trigger_id: str, seen_ms: int, planned_ms: int | None
    ) -> Trigger | None:
        now_ms, lane = self._lane(partition, queue)
        entry = lane.entries.get(trigger_id)
        if entry is None:
            return None
        lane.change(entry, paused=False, pause_note="")
        entry = lane.entries[trigger_id]
        trigger = entry.trigger
        if trigger.status is not PAUSED:
            return trigger
        next_ms = planned_ms if trigger.planned_ms == seen_ms else trigger.planned_ms
        if trigger.schedule.event:
            lane.entries[trigger_id] = entry.to(WAITING, 0)
        elif next_ms is None:
            lane.entries[trigger_id] = entry.to(COMPLETED, now_ms)
        else:
            former_ms = lane.heads().due_ms
            lane.queue_up(replace(entry, trigger=replace(trigger, planned_ms=next_ms)))
            self._triggers.of_queue(queue).wake(partition, former_ms)
        return lane.entries[trigger_id].trigger

    async def redrive(self, partition: int, queue: str, id: str) -> bool:
        _, lane = self._lane(partition, queue)
        entry = lane.entries.get(id)
        parent = lane.parent(entry) if entry else None
        if entry is None or entry.trigger.status is not DEAD or (entry.trigger.event and parent is None):
            return False
        former_ms = lane.heads().due_ms
        if parent and entry.trigger.event:
            lane.change(parent, pending=parent.trigger.pending + 1)
        alive = replace(entry.trigger, failures=0, last_error="")
        lane.queue_up(replace(entry, trigger=alive))
        self._triggers.of_queue(queue).wake(partition, former_ms)
        return True

    async def listeners(self, name: str) -> Sequence[Listener]:
        return [
            Listener(partition, queue, trigger.id, trigger.schedule)
            for partition, queue, trigger in self._triggers.listening(name)
        ]

    async def count_listeners(self, name: str) -> int:
        return len(self._triggers.listening(name))

    async def fire(self, orders: Sequence[FiringOrder], event: Event, *, by_hand: bool = False) -> Sequence[Outcome]:
        return [self._fire(order, event, by_hand) for order in orders]

    def _fire(self, order: FiringOrder, event: Event, by_hand: bool) -> Outcome:
        now_ms, lane = self._lane(order.partition, order.queue)
        policy = self._triggers.policy
        entry = lane.entries.get(order.trigger_id)
        if entry is None:
            return Outcome.GONE
        trigger, id = entry.trigger, firing_id(order.trigger_id, event.id)
        if id in lane.entries or id in lane.tombstones:
            return Outcome.DUPLICATE
        if not by_hand and not _accepts(trigger, event, now_ms, order.start_ms):
            return Outcome.GONE
        if trigger.pending >= policy.max_pending:
            lane.change(entry, dropped=trigger.dropped + 1)
            return Outcome.FULL
        planned_ms = max(now_ms, trigger.planned_ms + 1) if trigger.schedule.event else now_ms
        latest_ms = planned_ms if trigger.schedule.event else trigger.planned_ms
        lane.change(entry, pending=trigger.pending + 1, planned_ms=latest_ms)
        jitter_ms = 0 if by_hand else trigger.schedule.jitter_ms
        firing = Trigger(
            id, trigger.partition_key, Schedule.once(planned_ms), event.payload_json, trigger.epoch, SCHEDULED,
            planned_ms, 0, "", 1, now_ms, event=event,
        )  # fmt: skip
        former_ms = lane.heads().due_ms
        place_ms = replace(firing.schedule, jitter_ms=jitter_ms).delivery_ms(id, planned_ms)
        lane.entries[id] = Entry(firing, place_ms, born_ms=trigger.created_at_ms)
        self._triggers.of_queue(order.queue).wake(order.partition, former_ms)
        return Outcome.FIRED

    async def firings(
        self, partition: int, queue: str, after: str, limit: int, trigger_id: str = ""
    ) -> tuple[Sequence[Firing], str]:
        _, lane = self._lane(partition, queue)
        found = [
            firing
            for firing in lane.firings
            if (not after or firing.position < after)
            if trigger_id in ("", firing.trigger_id, trigger_of(firing.trigger_id))
        ]
        return found[:limit], found[limit - 1].position if len(found) > limit else ""

    async def counts(self, partition: int, queue: str) -> Counts:
        now_ms, lane = self._lane(partition, queue)
        counted = {status: len(lane.index(status)) for status in TriggerStatus}
        listed = len([entry for entry in lane.entries.values() if queue and entry.trigger.event is None])
        return Counts(counted[SCHEDULED], counted[CLAIMED], counted[DEAD], listed, 0, lane.heads().due_ms, now_ms)

    async def queues(self, partition: int) -> Sequence[str]:
        return sorted(
            queue for (at, queue), lane in self._triggers.lanes.items() if at == partition and queue and lane.entries
        )

    async def sweep(self, partition: int, queue: str, index: str, first: int) -> Swept:
        _, lane = self._lane(partition, queue)
        for id, entry in list(lane.entries.items()):
            if entry.trigger.event and lane.parent(entry) is None and entry.trigger.status is _STATUS.get(index):
                del lane.entries[id]
        return Swept()

    def _lane(self, partition: int, queue: str) -> tuple[int, Lane]:
        return self._triggers.of_queue(queue).lane_at(partition)


def _accepts(trigger: Trigger, event: Event, now_ms: int, start_ms: int) -> bool:
    schedule = trigger.schedule
    return (
        trigger.status is WAITING
        and schedule.event is not None
        and schedule.event.name == event.name
        and start_ms <= now_ms <= schedule.last_ms
        and (not schedule.max_firings or trigger.fired + trigger.pending < schedule.max_firings)
    )
