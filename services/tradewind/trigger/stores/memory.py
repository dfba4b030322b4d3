"""Triggers in memory: the executable specification of the ports, obvious rather than fast, gone with the process."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tradewind.server.clock import SystemClock
from tradewind.trigger.domain.claim import Ack, DueTrigger, Extension, Firing, Nack, Subscription, Token
from tradewind.trigger.domain.errors import StaleEpoch
from tradewind.trigger.domain.policy import BATCH_BYTES, REAP_LIMIT, Policy
from tradewind.trigger.domain.trigger import TRANSITIONS, Trigger, TriggerDraft, TriggerStatus
from tradewind.trigger.ports import (
    ClaimOrder,
    Claims,
    DeadLetter,
    EarlierDue,
    Heads,
    NewReceiver,
    Page,
    Position,
    Settlement,
    Survey,
    Wake,
)

Answer = TypeVar("Answer")

SCHEDULED, CLAIMED = TriggerStatus.SCHEDULED, TriggerStatus.CLAIMED
COMPLETED, DEAD = TriggerStatus.COMPLETED, TriggerStatus.DEAD


@dataclass(frozen=True, slots=True)
class _Entry:
    """A trigger and what only the store knows of it.

    `place_ms` is when it is to be delivered (scheduled), when its lease lapses (claimed) or when it ended.
    """

    trigger: Trigger
    place_ms: int
    attempt: int = 0
    token: str = ""

    def to(self, status: TriggerStatus, place_ms: int, token: str = "", **changes: object) -> "_Entry":
        before = self.trigger.status
        if status is not before and status not in TRANSITIONS[before]:
            raise AssertionError(f"a trigger cannot become {status.value} when it is {before.value}")
        trigger = replace(self.trigger, status=status, **changes)  # type: ignore[arg-type]
        return replace(self, trigger=trigger, place_ms=place_ms, token=token)


@dataclass(slots=True)
class _Partition:
    entries: dict[str, _Entry] = field(default_factory=dict)
    tombstones: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Epoch and end of each."""
    receiver: Subscription | None = None
    firings: list[Firing] = field(default_factory=list)
    """Newest first."""

    def index(self, status: TriggerStatus) -> list[_Entry]:
        found = [entry for entry in self.entries.values() if entry.trigger.status is status]
        return sorted(found, key=lambda entry: (entry.place_ms, entry.trigger.id))

    def heads(self) -> Heads:
        due, claimed = self.index(SCHEDULED), self.index(CLAIMED)
        return Heads(due[0].place_ms if due else None, claimed[0].place_ms if claimed else None)


class MemoryTriggerStore:
    """TriggerStore, ClaimStore and WakeChannel in one process, for tests and for trying things out.

    `clock` tells the time in milliseconds; 0 means the system's own.
    """

    def __init__(self, clock: Callable[[], int], policy: Policy | None = None) -> None:
        self._clock = clock
        self._policy = policy or Policy()
        self._partitions: dict[int, _Partition] = {}
        self._ears: list[Callable[[Wake], None]] = []

    async def save(self, partition: int, draft: TriggerDraft) -> Trigger:
        now_ms, part = self._open(partition)
        entry = part.entries.get(draft.id)
        self._refuse_stale(part, draft.id, draft.epoch, now_ms)
        part.tombstones.pop(draft.id, None)
        if entry is None:
            new = Trigger(
                draft.id, draft.partition_key, draft.schedule, draft.payload_json, draft.epoch, SCHEDULED,
                0, 0, "", 1, now_ms,
            )  # fmt: skip
            return self._begin(partition, _Entry(new, 0), draft.schedule.first(now_ms), now_ms)
        known = entry.trigger
        if (known.schedule, known.epoch) == (draft.schedule, draft.epoch):
            changed = replace(known, partition_key=draft.partition_key, payload_json=draft.payload_json)
            if changed != known:
                part.entries[draft.id] = replace(entry, trigger=replace(changed, revision=known.revision + 1))
            return part.entries[draft.id].trigger
        goes_on = known.schedule == draft.schedule and known.status is not COMPLETED
        fresh = entry.to(
            SCHEDULED, 0, partition_key=draft.partition_key, payload_json=draft.payload_json, schedule=draft.schedule,
            epoch=draft.epoch, failures=0, last_error="", revision=known.revision + 1,
            fired=known.fired if goes_on else 0,
        )  # fmt: skip
        planned_ms = known.planned_ms if goes_on else draft.schedule.first(now_ms)
        return self._begin(partition, fresh, planned_ms, now_ms)

    async def remove(self, partition: int, trigger_id: str, epoch: int) -> bool:
        now_ms, part = self._open(partition)
        self._refuse_stale(part, trigger_id, epoch, now_ms)
        part.tombstones[trigger_id] = (epoch, now_ms + self._policy.tombstone_ms)
        return part.entries.pop(trigger_id, None) is not None

    async def find(self, partition: int, trigger_id: str) -> Trigger | None:
        _, part = self._open(partition)
        entry = part.entries.get(trigger_id)
        return entry.trigger if entry else None

    async def page_scheduled(self, partition: int, up_to_ms: int | None, after: Position | None, limit: int) -> Page:
        now_ms, part = self._open(partition)
        last = now_ms if up_to_ms == 0 else up_to_ms
        return _page([entry for entry in part.index(SCHEDULED) if last is None or entry.place_ms <= last], after, limit)

    async def page_claimed(self, partition: int, after: Position | None, limit: int) -> Page:
        _, part = self._open(partition)
        return _page(part.index(CLAIMED), after, limit)

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> Sequence[Survey | int]:
        answers: list[Survey | int] = []
        for subscription in subscriptions:
            now_ms, part = self._open(subscription.partition)
            if part.receiver and part.receiver.epoch > subscription.epoch:
                answers.append(part.receiver.epoch)
                continue
            part.receiver = subscription
            self._tell(NewReceiver(subscription))
            answers.append(Survey(part.heads(), now_ms * 1000))
        return answers

    async def claim_due(self, orders: Sequence[ClaimOrder]) -> Sequence[Claims]:
        return [self._claim(order) for order in orders]

    def _claim(self, order: ClaimOrder) -> Claims:
        now_ms, part = self._open(order.subscription.partition)
        receiver = part.receiver
        if receiver is None or receiver.epoch < order.subscription.epoch:
            part.receiver = order.subscription
        elif receiver != order.subscription:
            return Claims(survey=None)
        dead: list[DeadLetter] = []
        for entry in [entry for entry in part.index(CLAIMED) if entry.place_ms <= now_ms][:REAP_LIMIT]:
            delay_ms = self._policy.backoff_ms(entry.trigger.failures)
            self._fail(part, entry, "the lease lapsed before an answer came", delay_ms, now_ms, dead)
        due: list[DueTrigger] = []
        size = 0
        for entry in [entry for entry in part.index(SCHEDULED) if entry.place_ms <= now_ms][: order.limit]:
            if size >= BATCH_BYTES:
                break
            attempt = entry.attempt + 1
            token = f"{order.subscription.partition}:{entry.trigger.id}:{attempt}:{order.nonce}"
            claimed = replace(entry.to(CLAIMED, now_ms + order.lease_ms, token), attempt=attempt)
            part.entries[entry.trigger.id] = claimed
            due.append(DueTrigger(claimed.trigger, token, claimed.place_ms, now_ms))
            size += len(claimed.trigger.payload_json.encode())
        return Claims(Survey(part.heads(), now_ms * 1000), tuple(due), tuple(dead))

    async def ack(self, acks: Sequence[Ack], session: str) -> Settlement:
        def settle(part: _Partition, entry: _Entry, ack: Ack, now_ms: int, _: list[DeadLetter]) -> None:
            trigger = entry.trigger
            self._note(part, entry, "fired", now_ms)
            schedule, fired = trigger.schedule, trigger.fired + 1
            following = None if schedule.needs_next else schedule.following(trigger.planned_ms, now_ms)
            if schedule.repeats and ack.next_ms is not None and ack.next_ms > trigger.planned_ms:
                following = ack.next_ms if ack.next_ms <= schedule.last_ms else None
            if following is None or ack.finished or fired == schedule.max_firings:
                part.entries[trigger.id] = entry.to(COMPLETED, now_ms, failures=0, last_error="", fired=fired)
            else:
                part.entries[trigger.id] = entry.to(
                    SCHEDULED, schedule.delivery_ms(trigger.id, following), planned_ms=following, failures=0,
                    last_error="", fired=fired,
                )  # fmt: skip

        return self._settle([(ack.token, ack) for ack in acks], session, settle)

    async def nack(self, nacks: Sequence[Nack], session: str) -> Settlement:
        def settle(part: _Partition, entry: _Entry, nack: Nack, now_ms: int, dead: list[DeadLetter]) -> None:
            backoff_ms = self._policy.backoff_ms(entry.trigger.failures + 1)
            delay_ms = backoff_ms if nack.retry_after_ms is None else nack.retry_after_ms
            self._fail(part, entry, nack.error, delay_ms, now_ms, dead)

        return self._settle([(nack.token, nack) for nack in nacks], session, settle)

    async def extend(self, extensions: Sequence[Extension]) -> Settlement:
        def settle(part: _Partition, entry: _Entry, extension: Extension, now_ms: int, _: list[DeadLetter]) -> None:
            part.entries[entry.trigger.id] = replace(entry, place_ms=now_ms + extension.lease_ms)

        return self._settle([(extension.token, extension) for extension in extensions], None, settle)

    async def give_back(self, tokens: Sequence[Token], session: str) -> Settlement:
        def settle(part: _Partition, entry: _Entry, _: Token, now_ms: int, __: list[DeadLetter]) -> None:
            part.entries[entry.trigger.id] = entry.to(SCHEDULED, entry.trigger.delivery_ms)

        return self._settle([(token, token) for token in tokens], session, settle)

    async def look(self, partitions: Sequence[int], survey: int) -> tuple[Mapping[int, int | None], Survey]:
        now_ms, surveyed = self._open(survey)
        due = {partition: self._open(partition)[1].heads().due_ms for partition in partitions}
        return due, Survey(surveyed.heads(), now_ms * 1000)

    async def recent_firings(self, partition: int, limit: int) -> Sequence[Firing]:
        return self._open(partition)[1].firings[:limit]

    async def listen(self, hear: Callable[[Wake], None], missed: Callable[[], None]) -> Callable[[], None]:
        self._ears.append(hear)
        return lambda: self._ears.remove(hear)

    def _open(self, partition: int) -> tuple[int, _Partition]:
        """Return the time and the partition as it is then, without what has passed its retention."""
        now_ms = self._clock() or SystemClock().now_ms()
        part = self._partitions.setdefault(partition, _Partition())
        for trigger_id, entry in list(part.entries.items()):
            ended = entry.trigger.status in (COMPLETED, DEAD)
            if ended and entry.place_ms + self._policy.retention_ms <= now_ms:
                del part.entries[trigger_id]
        for trigger_id, (_, end_ms) in list(part.tombstones.items()):
            if end_ms <= now_ms:
                del part.tombstones[trigger_id]
        return now_ms, part

    def _refuse_stale(self, part: _Partition, trigger_id: str, epoch: int, now_ms: int) -> None:
        entry = part.entries.get(trigger_id)
        known = entry.trigger.epoch if entry else part.tombstones.get(trigger_id, (epoch, 0))[0]
        if epoch < known:
            raise StaleEpoch(trigger_id, epoch, known)

    def _begin(self, partition: int, entry: _Entry, planned_ms: int | None, now_ms: int) -> Trigger:
        part = self._partitions[partition]
        if planned_ms is None:
            trigger = replace(entry.trigger, status=COMPLETED, planned_ms=0)
            part.entries[trigger.id] = replace(entry, trigger=trigger, place_ms=now_ms)
            return trigger
        trigger = replace(entry.trigger, planned_ms=planned_ms)
        entry = replace(entry, trigger=trigger, place_ms=trigger.delivery_ms)
        former_ms = part.heads().due_ms
        part.entries[entry.trigger.id] = entry
        self._wake(partition, former_ms, entry.place_ms)
        return entry.trigger

    def _settle(
        self,
        answers: Iterable[tuple[Token, Answer]],
        session: str | None,
        settle: Callable[[_Partition, _Entry, Answer, int, list[DeadLetter]], None],
    ) -> Settlement:
        lost: set[str] = set()
        dead: list[DeadLetter] = []
        former: dict[int, int | None] = {}
        for token, answer in answers:
            now_ms, part = self._open(token.partition)
            former.setdefault(token.partition, part.heads().due_ms)
            entry = part.entries.get(token.trigger_id)
            if entry is None or entry.trigger.status is not CLAIMED or entry.token != token.text:
                lost.add(token.text)
            else:
                settle(part, entry, answer, now_ms, dead)
        heads = {partition: self._partitions[partition].heads() for partition in former}
        for partition, former_ms in former.items():
            receiver = self._partitions[partition].receiver
            # The receiver itself gets the heads in the settlement.
            if session is not None and (receiver is None or receiver.session != session):
                self._wake(partition, former_ms, heads[partition].due_ms)
        return Settlement(frozenset(lost), heads, tuple(dead))

    def _fail(
        self, part: _Partition, entry: _Entry, error: str, delay_ms: int, now_ms: int, dead: list[DeadLetter]
    ) -> None:
        trigger = entry.trigger
        failures = trigger.failures + 1
        if failures < self._policy.max_failures:
            place_ms = now_ms + delay_ms if delay_ms > 0 else trigger.delivery_ms
            part.entries[trigger.id] = entry.to(SCHEDULED, place_ms, failures=failures, last_error=error)
            return
        self._note(part, entry, "dead", now_ms)
        part.entries[trigger.id] = entry.to(DEAD, now_ms, failures=failures, last_error=error)
        dead.append(DeadLetter(trigger.id, failures, error))
        for surplus in part.index(DEAD)[: -self._policy.dead_kept]:
            del part.entries[surplus.trigger.id]

    def _note(self, part: _Partition, entry: _Entry, outcome: str, now_ms: int) -> None:
        trigger = entry.trigger
        part.firings.insert(0, Firing(trigger.id, trigger.planned_ms, entry.attempt, outcome, now_ms))
        del part.firings[self._policy.firings_kept :]

    def _wake(self, partition: int, former_ms: int | None, earliest_ms: int | None) -> None:
        if earliest_ms is not None and (former_ms is None or earliest_ms < former_ms):
            self._tell(EarlierDue(partition, earliest_ms))

    def _tell(self, wake: Wake) -> None:
        for hear in self._ears:
            hear(wake)


def _page(entries: Iterable[_Entry], after: Position | None, limit: int) -> Page:
    rest = [entry for entry in entries if after is None or (entry.place_ms, entry.trigger.id) > (after.score, after.id)]
    taken: list[_Entry] = []
    size = 0
    for entry in rest[:limit]:
        if size >= BATCH_BYTES:
            break
        taken.append(entry)
        size += len(entry.trigger.payload_json.encode())
    end = Position(taken[-1].place_ms, taken[-1].trigger.id) if taken else None
    return Page(tuple(entry.trigger for entry in taken), end, more=len(taken) < len(rest))
