"""Events on their way to the scheduler: each partition to the subscriber with the highest epoch."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from tradewind.node_task_manager.ports.events import FIRST, Event, NewEvent
from tradewind.node_task_manager.use_cases.shard import Shard
from tradewind.server.beats import next_beat
from tradewind.server.incidents import IncidentLog

_log = structlog.get_logger(__name__)
_BATCH = 500
_RETRY_S = 0.2

ShardEvent = tuple[int, Event]


@dataclass(eq=False)
class Subscriber:
    """A receiver's stream: the epochs of its partitions; `positions`, the last event sent by (shard, partition);
    `buffered`, events to send next without reading the store; `unread`, where there are new events to read."""

    partitions: dict[int, int] = field(default_factory=dict)
    positions: dict[tuple[int, int], str] = field(default_factory=dict)
    buffered: list[ShardEvent] = field(default_factory=list)
    unread: set[tuple[int, int]] = field(default_factory=set)
    ended: list[int] = field(default_factory=list)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    poll_timer: asyncio.TimerHandle | None = None

    def push(self, shard: int, new: NewEvent) -> None:
        """Take an event if it follows the last one sent; any other is news to be read."""
        at = (shard, new.event.partition)
        if self.positions[at] == new.after and len(self.buffered) < _BATCH:
            self.positions[at] = new.event.event_id
            self.buffered.append((shard, new.event))
            self.wake.set()
        else:
            self.notify(*at)

    def notify(self, shard: int, partition: int) -> None:
        """Note that a partition may have new events."""
        self.unread.add((shard, partition))
        self.wake.set()

    def notify_all(self) -> None:
        """Note that any partition may have new events."""
        self.poll_timer = None
        self.unread |= self.positions.keys()
        self.wake.set()

    def rewind(self) -> None:
        """Go back to the first unacknowledged event of each partition."""
        self.buffered = []
        self.positions = dict.fromkeys(self.positions, FIRST)
        self.unread |= self.positions.keys()
        self.wake.set()

    def end(self, partition: int) -> None:
        """Note that a higher epoch has taken this partition."""
        self.ended.append(partition)
        self.wake.set()

    def forget(self, partition: int) -> None:
        """Drop a partition and its events."""
        self.partitions.pop(partition, None)
        for at in [at for at in self.positions if at[1] == partition]:
            del self.positions[at]
        self.buffered = [each for each in self.buffered if each[1].partition != partition]


class EventFeed:
    """Gives a subscriber new events whenever it has sent the previous ones, so that a slow one delays nobody else.

    Events that a script returns are sent on at once if they follow the last event sent; all others are read.
    Subscribers are woken by news, and poll every `poll_s` in case a wake-up was lost. `publish_owner(partition, epoch)`
    tells other replicas who has a partition now.
    """

    def __init__(self, shards: Mapping[int, Shard], publish_owner: Callable[[int, int], None], poll_s: float) -> None:
        self._shards = shards
        self._publish_owner = publish_owner
        self._poll_s = poll_s
        self._owners: dict[int, Subscriber] = {}
        self._failing = IncidentLog(_log, "events_not_read", "events_read_again")

    def push(self, shard: int, events: Sequence[NewEvent]) -> set[int]:
        """Pass new events on to the owners of their partitions; return the partitions without an owner here."""
        unowned = set()
        for new in events:
            owner = self._owners.get(new.event.partition)
            if owner is None:
                unowned.add(new.event.partition)
            else:
                owner.push(shard, new)
        return unowned

    def notify(self, shard: int, partitions: Sequence[int]) -> None:
        """Tell the owners of these partitions that there are new events."""
        for partition in partitions:
            owner = self._owners.get(partition)
            if owner is not None:
                owner.notify(shard, partition)

    def recheck(self) -> None:
        """Send all owners what is not acknowledged: the store may have lost news, acknowledgements, and even events."""
        for owner in dict.fromkeys(self._owners.values()):
            owner.rewind()

    def supersede(self, partition: int, epoch: int) -> None:
        """End the subscription of a partition if its epoch is lower."""
        owner = self._owners.get(partition)
        if owner is not None and owner.partitions[partition] < epoch:
            self._end_subscription(owner, partition)

    async def subscribe(self, subscriber: Subscriber, partition: int, epoch: int) -> None:
        """Deliver a partition to this subscriber from its first unacknowledged event; a stale epoch ends at once."""
        for shard in self._shards.values():
            if not await shard.events.subscribe(partition, epoch):
                self._end_subscription(subscriber, partition)
                return
        owner = self._owners.get(partition)
        if owner is not None and owner is not subscriber:
            if owner.partitions[partition] > epoch:
                self._end_subscription(subscriber, partition)
                return
            self._end_subscription(owner, partition)
        self._owners[partition] = subscriber
        subscriber.partitions[partition] = epoch
        self._publish_owner(partition, epoch)
        for number in self._shards:
            subscriber.positions[number, partition] = FIRST
            subscriber.notify(number, partition)

    def unsubscribe(self, subscriber: Subscriber, partitions: Sequence[int]) -> None:
        """Stop delivering these partitions to this subscriber."""
        for partition in partitions:
            subscriber.forget(partition)
            if self._owners.get(partition) is subscriber:
                del self._owners[partition]

    def leave(self, subscriber: Subscriber) -> None:
        """Stop delivering to this subscriber."""
        self.unsubscribe(subscriber, list(subscriber.partitions))
        if subscriber.poll_timer is not None:
            subscriber.poll_timer.cancel()

    def _end_subscription(self, subscriber: Subscriber, partition: int) -> None:
        self.unsubscribe(subscriber, [partition])
        subscriber.end(partition)

    async def acknowledge(self, subscriber: Subscriber, acks: Sequence[tuple[int, int, str]]) -> None:
        """Forget handled events, each given as (shard, partition, event id); only the present owner may do so."""
        by_shard: dict[int, dict[int, str]] = {}
        for shard, partition, event_id in acks:
            if shard in self._shards and self._owners.get(partition) is subscriber:
                by_shard.setdefault(shard, {})[partition] = event_id
        for shard, through in by_shard.items():
            await self._shards[shard].events.acknowledge(through)

    async def next(self, subscriber: Subscriber) -> tuple[list[ShardEvent], list[int]]:
        """Wait for something to send: events with their shard, or partitions that have ended."""
        while True:
            if subscriber.ended:
                ended, subscriber.ended = subscriber.ended, []
                return [], ended
            if subscriber.buffered:
                buffered, subscriber.buffered = subscriber.buffered, []
                return buffered, []
            unread, subscriber.unread = subscriber.unread, set()
            for number in sorted({shard for shard, _ in unread}):
                if events := await self._read(subscriber, number, [at for at in unread if at[0] == number]):
                    subscriber.unread |= {at for at in unread if at[0] > number}
                    return events, []
            if subscriber.buffered or subscriber.unread or subscriber.ended:
                continue
            subscriber.wake.clear()
            if subscriber.poll_timer is None:
                # One timer serves many waits: setting and cancelling one for each costs more than an extra look.
                loop = asyncio.get_running_loop()
                subscriber.poll_timer = loop.call_at(next_beat(self._poll_s), subscriber.notify_all)
            await subscriber.wake.wait()

    async def _read(self, subscriber: Subscriber, number: int, wanted: Sequence[tuple[int, int]]) -> list[ShardEvent]:
        after = {at[1]: subscriber.positions[at] for at in wanted if at in subscriber.positions}
        if not after:
            return []
        try:
            found = await self._shards[number].events.read(after, _BATCH)
        except Exception as error:
            self._failing.note(f"shard {number}", error=error)
            await asyncio.sleep(_RETRY_S)
            subscriber.unread |= {(number, partition) for partition in after}
            return []
        counts = dict.fromkeys(after, 0)
        # Partitions that were taken away, subscribed to anew or pushed further meanwhile are read again from there.
        moved = {at for at, position in after.items() if subscriber.positions.get((number, at)) != position}
        events = []
        for event in found:
            counts[event.partition] += 1
            if event.partition not in moved:
                events.append((number, event))
                subscriber.positions[number, event.partition] = event.event_id
        again = moved | {partition for partition, count in counts.items() if count >= _BATCH}
        subscriber.unread |= {(number, partition) for partition in again}
        return events
