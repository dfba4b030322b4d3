"""Triggers in memory: the executable specification of their delivery, obvious rather than fast."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TypeVar

from tradewind.server.clock import SystemClock
from tradewind.trigger.domain.claim import SHARED, Ack, DueTrigger, Extension, Nack, Subscription, Token
from tradewind.trigger.domain.errors import QueueFull
from tradewind.trigger.domain.policy import BATCH_BYTES, FORMER_CLAIMS, FORMER_LEASE_MS, REAP_LIMIT, Policy
from tradewind.trigger.domain.trigger import Trigger, TriggerDraft, TriggerStatus
from tradewind.trigger.ports.claims import ClaimOrder, Claims, DeadLetter, Settlement, Survey
from tradewind.trigger.ports.triggers import Page, Position
from tradewind.trigger.ports.wakes import EarlierDue, NewListener, NewReceiver, Wake
from tradewind.trigger.stores.memory_drafts import from_draft, refuse_stale, update
from tradewind.trigger.stores.memory_endings import add_firing, end_firing, fail
from tradewind.trigger.stores.memory_lanes import Entry, Lane, page_of, size_of

Answer = TypeVar("Answer")

SCHEDULED, CLAIMED = TriggerStatus.SCHEDULED, TriggerStatus.CLAIMED
COMPLETED, DEAD = TriggerStatus.COMPLETED, TriggerStatus.DEAD


class MemoryTriggerStore:
    """TriggerStore, ClaimStore and WakeChannel in one process, for tests and for trying things out.

    `clock` returns the time in milliseconds; 0 means the system's own. The triggers are those of `queue`, or of the
    flows when that is empty.
    """

    def __init__(self, clock: Callable[[], int], policy: Policy | None = None) -> None:
        self.queue = ""
        self.policy = policy or Policy()
        self.lanes: dict[tuple[int, str], Lane] = {}
        self._clock = clock
        self._subscribers: list[Callable[[Wake], None]] = []

    def of_queue(self, queue: str) -> "MemoryTriggerStore":
        """Return the store for the triggers of a queue, with the same data."""
        other = copy(self)
        other.queue = queue
        return other

    async def save(self, partition: int, draft: TriggerDraft) -> Trigger:
        now_ms, lane = self.lane_at(partition)
        refuse_stale(lane, draft.id, draft.epoch)
        entry = lane.entries.get(draft.id)
        if entry and (entry.trigger.schedule, entry.trigger.epoch) == (draft.schedule, draft.epoch):
            update(lane, entry, draft)
        else:
            self._refuse_full(partition, lane, draft)
            self._schedule_anew(partition, lane, draft, now_ms)
        return lane.entries[draft.id].trigger

    def _schedule_anew(self, partition: int, lane: Lane, draft: TriggerDraft, now_ms: int) -> None:
        entry = lane.entries.get(draft.id)
        known, attempt = (entry.trigger, entry.attempt) if entry else (None, 0)
        lane.tombstones.pop(draft.id, None)
        trigger = from_draft(draft, known, now_ms)
        if draft.schedule.event:
            status = TriggerStatus.PAUSED if trigger.paused else TriggerStatus.WAITING
            latest_ms = known.planned_ms if known and known.schedule.event else 0
            name = draft.schedule.event.name
            listened = len(self.listening(name))
            lane.entries[draft.id] = Entry(replace(trigger, status=status, planned_ms=latest_ms), 0, attempt)
            if len(self.listening(name)) > listened:
                self._publish(NewListener(partition, name))
            return
        goes_on = known is not None and known.schedule == draft.schedule and known.status is not COMPLETED
        planned_ms = known.planned_ms if known and goes_on else draft.schedule.first(now_ms)
        if planned_ms is None:
            lane.entries[draft.id] = Entry(replace(trigger, status=COMPLETED), now_ms, attempt)
        else:
            former_ms = lane.heads().due_ms
            lane.queue_up(Entry(replace(trigger, planned_ms=planned_ms), 0, attempt))
            self.wake(partition, former_ms)

    async def remove(self, partition: int, trigger_id: str, epoch: int) -> bool:
        now_ms, lane = self.lane_at(partition)
        refuse_stale(lane, trigger_id, epoch)
        lane.tombstones[trigger_id] = (epoch, now_ms + self.policy.tombstone_ms)
        return lane.entries.pop(trigger_id, None) is not None

    async def find(self, partition: int, trigger_id: str) -> Trigger | None:
        _, lane = self.lane_at(partition)
        entry = lane.entries.get(trigger_id)
        return entry.trigger if entry else None

    async def page_scheduled(self, partition: int, up_to_ms: int | None, after: Position | None, limit: int) -> Page:
        now_ms, lane = self.lane_at(partition)
        last = now_ms if up_to_ms == 0 else up_to_ms
        return page_of(
            [entry for entry in lane.index(SCHEDULED) if last is None or entry.place_ms <= last], after, limit
        )

    async def page_claimed(self, partition: int, after: Position | None, limit: int) -> Page:
        _, lane = self.lane_at(partition)
        return page_of(lane.index(CLAIMED), after, limit)

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> Sequence[Survey | int]:
        answers: list[Survey | int] = []
        for subscription in subscriptions:
            now_ms, lane = self.lane_at(subscription.partition)
            if subscription.epoch == SHARED:
                answers.append(Survey(lane.heads(), now_ms * 1000))
                continue
            if lane.receiver and lane.receiver.epoch > subscription.epoch:
                answers.append(lane.receiver.epoch)
                continue
            if lane.receiver and lane.receiver.session != subscription.session:
                if lane.receiver.epoch == subscription.epoch:
                    for entry in lane.index(CLAIMED)[:REAP_LIMIT]:
                        lane.queue_up(entry)
                lapse_ms = now_ms + FORMER_LEASE_MS
                longer = [entry for entry in lane.index(CLAIMED) if entry.place_ms > lapse_ms]
                for entry in longer[:FORMER_CLAIMS]:
                    lane.entries[entry.trigger.id] = replace(entry, place_ms=lapse_ms)
            lane.receiver = subscription
            self._publish(NewReceiver(subscription))
            answers.append(Survey(lane.heads(), now_ms * 1000))
        return answers

    async def claim_due(self, orders: Sequence[ClaimOrder]) -> Sequence[Claims]:
        return [self._claim(order) for order in orders]

    def _claim(self, order: ClaimOrder) -> Claims:
        now_ms, lane = self.lane_at(order.subscription.partition)
        if not _may_claim(lane, order.subscription):
            return Claims(survey=None)
        lapsed = [entry for entry in lane.index(CLAIMED) if entry.place_ms <= now_ms][:REAP_LIMIT]
        dead = self._take_back(lane, lapsed, now_ms)
        due: list[DueTrigger] = []
        size = 0
        within = [entry for entry in lane.index(SCHEDULED) if entry.place_ms <= now_ms + order.lead.max_ms]
        lead_ms = order.lead.for_count(len(within))
        for entry in [entry for entry in within if entry.place_ms <= now_ms + lead_ms][: order.limit]:
            if size >= BATCH_BYTES:
                break
            parent = lane.parent(entry)
            if entry.trigger.event and parent is None:
                del lane.entries[entry.trigger.id]
                continue
            attempt = entry.attempt + 1
            token = f"{order.subscription.partition}:{entry.trigger.id}:{attempt}:{order.nonce}"
            claimed = replace(entry.to(CLAIMED, now_ms + order.lease_ms, token), attempt=attempt)
            lane.entries[entry.trigger.id] = claimed
            owner = parent.trigger if parent and entry.trigger.event else None
            due.append(DueTrigger(claimed.trigger, token, claimed.place_ms, now_ms, owner))
            size += size_of(claimed.trigger) + (size_of(owner) if owner else 0)
        if lapsed and order.subscription.epoch == SHARED:
            self.wake(order.subscription.partition, None)
        return Claims(Survey(lane.heads(), now_ms * 1000, lead_ms), tuple(due), tuple(dead))

    def _take_back(self, lane: Lane, lapsed: list[Entry], now_ms: int) -> list[DeadLetter]:
        message = "the lease lapsed before an answer came"
        ended = (
            fail(lane, self.policy, entry, message, self.policy.backoff_ms(entry.trigger.failures), now_ms)
            for entry in lapsed
        )
        return list(filter(None, ended))

    async def ack(self, acks: Sequence[Ack], session: str) -> Settlement:
        def settle(lane: Lane, entry: Entry, ack: Ack, now_ms: int) -> None:
            trigger = entry.trigger
            add_firing(lane, self.policy, entry, "fired", now_ms)
            if trigger.event:
                end_firing(lane, self.policy, entry, now_ms)
                return
            schedule, fired = trigger.schedule, trigger.fired + 1
            next_ms = None if schedule.needs_next else schedule.following(trigger.planned_ms, now_ms)
            if schedule.repeats and ack.next_ms is not None and ack.next_ms > trigger.planned_ms:
                next_ms = ack.next_ms if ack.next_ms <= schedule.last_ms else None
            if next_ms is None or ack.finished or fired == schedule.max_firings:
                lane.entries[trigger.id] = entry.to(COMPLETED, now_ms, failures=0, last_error="", fired=fired)
            else:
                changed = replace(trigger, planned_ms=next_ms, failures=0, last_error="", fired=fired)
                lane.queue_up(replace(entry, trigger=changed))

        return self._settle([(ack.token, ack) for ack in acks], session, settle)

    async def nack(self, nacks: Sequence[Nack], session: str) -> Settlement:
        def settle(lane: Lane, entry: Entry, nack: Nack, now_ms: int) -> DeadLetter | None:
            backoff_ms = self.policy.backoff_ms(entry.trigger.failures + 1)
            delay_ms = backoff_ms if nack.retry_after_ms is None else nack.retry_after_ms
            return fail(lane, self.policy, entry, nack.error, delay_ms, now_ms, postponed=nack.postponed)

        return self._settle([(nack.token, nack) for nack in nacks], session, settle)

    async def extend(self, extensions: Sequence[Extension]) -> Settlement:
        def settle(lane: Lane, entry: Entry, extension: Extension, now_ms: int) -> None:
            lane.entries[entry.trigger.id] = replace(entry, place_ms=now_ms + extension.lease_ms)

        return self._settle([(extension.token, extension) for extension in extensions], None, settle)

    async def give_back(self, tokens: Sequence[Token], session: str) -> Settlement:
        def settle(lane: Lane, entry: Entry, _: Token, now_ms: int) -> None:
            lane.queue_up(entry)

        return self._settle([(token, token) for token in tokens], session, settle)

    async def withdraw(self, orders: Sequence[ClaimOrder]) -> None:
        for order in orders:
            partition = order.subscription.partition
            _, lane = self.lane_at(partition)
            former_ms = lane.heads().due_ms
            for entry in lane.index(CLAIMED):
                if entry.token.endswith(f":{order.nonce}"):
                    lane.queue_up(entry)
            self.wake(partition, former_ms)

    async def poll(self, partitions: Sequence[int], survey: int) -> tuple[Mapping[int, int | None], Survey]:
        now_ms, surveyed = self.lane_at(survey)
        due = {partition: self.lane_at(partition)[1].heads().due_ms for partition in partitions}
        return due, Survey(surveyed.heads(), now_ms * 1000)

    async def listen(self, on_wake: Callable[[Wake], None], on_gap: Callable[[], None]) -> Callable[[], None]:
        self._subscribers.append(on_wake)
        return lambda: self._subscribers.remove(on_wake)

    def lane_at(self, partition: int) -> tuple[int, Lane]:
        """Return the time and the lane of a partition, after deleting what has passed its retention."""
        now_ms = self._clock() or SystemClock().now_ms()
        lane = self.lanes.setdefault((partition, self.queue), Lane())
        for trigger_id, entry in list(lane.entries.items()):
            ended = entry.trigger.status in (COMPLETED, DEAD)
            if ended and entry.place_ms + self.policy.retention_ms <= now_ms:
                del lane.entries[trigger_id]
        for trigger_id, (_, end_ms) in list(lane.tombstones.items()):
            if end_ms <= now_ms:
                del lane.tombstones[trigger_id]
        return now_ms, lane

    def next_ms(self) -> int | None:
        """Return when the next trigger is to be delivered or the next claim lapses, None when there are none."""
        places = [
            entry.place_ms
            for lane in self.lanes.values()
            for entry in lane.entries.values()
            if entry.trigger.status in (SCHEDULED, CLAIMED)
        ]
        return min(places, default=None)

    def _refuse_full(self, partition: int, lane: Lane, draft: TriggerDraft) -> None:
        if not self.queue:
            return
        held = [entry.trigger for entry in lane.entries.values() if entry.trigger.event is None]
        if draft.id not in lane.entries and len(held) >= self.policy.max_queue_triggers:
            raise QueueFull.of_triggers(self.queue, self.policy.max_queue_triggers)
        if draft.schedule.event is None:
            return
        name = draft.schedule.event.name
        listeners = [(queue, one.id) for at, queue, one in self.listening(name) if at == partition]
        if (self.queue, draft.id) not in listeners and len(listeners) >= self.policy.max_listeners:
            raise QueueFull.of_listeners(name, self.policy.max_listeners)

    def listening(self, name: str) -> list[tuple[int, str, Trigger]]:
        """Return partition, queue and trigger of all that listen to events of a name, including paused ones."""

        def listens(entry: Entry) -> bool:
            event = entry.trigger.schedule.event
            return event is not None and event.name == name and entry.trigger.status is not COMPLETED

        return [
            (partition, queue, entry.trigger)
            for (partition, queue), lane in sorted(self.lanes.items())
            for entry in lane.entries.values()
            if listens(entry)
        ]

    def _settle(
        self,
        answers: Iterable[tuple[Token, Answer]],
        session: str | None,
        settle: Callable[[Lane, Entry, Answer, int], DeadLetter | None],
    ) -> Settlement:
        lost: set[str] = set()
        dead: list[DeadLetter] = []
        former: dict[int, int | None] = {}
        for token, answer in answers:
            now_ms, lane = self.lane_at(token.partition)
            former.setdefault(token.partition, lane.heads().due_ms)
            entry = lane.entries.get(token.trigger_id)
            if entry is None or entry.trigger.status is not CLAIMED or entry.token != token.text:
                lost.add(token.text)
            elif letter := settle(lane, entry, answer, now_ms):
                dead.append(letter)
        heads = {partition: self.lanes[partition, self.queue].heads() for partition in former}
        for partition, former_ms in former.items():
            receiver = self.lanes[partition, self.queue].receiver
            # The receiver itself gets the heads in the settlement.
            if session is not None and (receiver is None or receiver.session != session):
                self.wake(partition, former_ms)
        return Settlement(frozenset(lost), heads, tuple(dead))

    def wake(self, partition: int, former_ms: int | None) -> None:
        """Publish EarlierDue if something is now due earlier than `former_ms`."""
        earliest_ms = self.lanes[partition, self.queue].heads().due_ms
        if earliest_ms is not None and (former_ms is None or earliest_ms < former_ms):
            self._publish(EarlierDue(partition, earliest_ms, self.queue))

    def _publish(self, wake: Wake) -> None:
        for on_wake in self._subscribers:
            on_wake(wake)


def _may_claim(lane: Lane, subscription: Subscription) -> bool:
    """Say whether a receiver may claim; one with a higher epoch takes the place of the receiver so far."""
    if subscription.epoch == SHARED:
        return True
    if lane.receiver is None or lane.receiver.epoch < subscription.epoch:
        lane.receiver = subscription
    return lane.receiver == subscription
