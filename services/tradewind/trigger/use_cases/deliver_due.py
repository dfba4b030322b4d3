"""Delivers due triggers to one receiver: sleeps until something is due, claims it, and settles the answers."""

import asyncio
import secrets
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from tradewind.server.beats import beat_after
from tradewind.trigger.domain.claim import SHARED, Ack, DueTrigger, Extension, Nack, Subscription, Token
from tradewind.trigger.domain.lead import Lead
from tradewind.trigger.metrics import count_delivered
from tradewind.trigger.ports import (
    ClaimOrder,
    EarlierDue,
    Heads,
    NewReceiver,
    Settlement,
    Survey,
    TriggersOfQueue,
)
from tradewind.trigger.use_cases.held_claims import HeldClaims, token_of
from tradewind.trigger.use_cases.plan_acks import planned
from tradewind.trigger.use_cases.receivers import Receivers, alarm
from tradewind.trigger.use_cases.trace_firings import TraceFirings
from tradewind.trigger.use_cases.watched_partition import WatchedPartition

_LATE_US = 300
"""How long after the due time a claim is sent, so that it does not reach the store just before that time."""

_LEAST_REST_S = 0.0005
"""How long the next try waits at least, after a claim that came too early all the same."""

_CLAIMED_AT_ONCE = 256
"""How many triggers are claimed before they are sent: the first of a thousand need not wait for the last."""

MOST_LOST = 10_000
"""A receiver's messages are not read while more tokens of void claims than this wait to be reported to it."""

_AGAIN_S = 1.0
"""How long after an order was withdrawn, or could not be, the withdrawal is repeated."""

_JUMP_US = 5_000
"""If the store's clock has jumped by more than this, every partition is asked for its time again."""

Result = TypeVar("Result")

_log = structlog.get_logger(__name__)


def local_us() -> int:
    """Return microseconds by a clock that nobody can set."""
    return time.monotonic_ns() // 1000


@dataclass(frozen=True, slots=True)
class Parcel:
    """What a receiver is told at once.

    Due triggers, tokens of void claims, partitions that it no longer receives, and events that a trigger has begun to
    listen to.
    """

    due: tuple[DueTrigger, ...] = ()
    lost: tuple[str, ...] = ()
    ended: tuple[int, ...] = ()
    listened: tuple[str, ...] = ()


class Delivery:
    """One receiver's stream. One task calls `next`; others may call the other methods meanwhile.

    It reports new listeners to the events that `listeners_of` names.
    """

    def __init__(
        self,
        store: TriggersOfQueue,
        receivers: Receivers,
        credits: int,
        lease_ms: int,
        fallback_s: float,
        lead_ms: int = 0,
        listeners_of: Collection[str] = (),
        clock_us: Callable[[], int] = local_us,
        traces: TraceFirings | None = None,
    ) -> None:
        self._traces = traces
        self.session = secrets.token_hex(8)
        self._store = store
        self._receivers = receivers
        self._lease_ms = lease_ms
        self._lead_ms = lead_ms
        self._listeners_of = frozenset(listeners_of)
        self._fallback_us = int(fallback_s * 1_000_000)
        self._clock_us = clock_us
        self._held = HeldClaims(credits)
        self._watched: dict[int, WatchedPartition] = {}
        self._lost: list[str] = []
        self._ended: list[int] = []
        self._listened: set[str] = set()
        self._heard = asyncio.Event()
        self._heard.set()
        self._stirred = asyncio.Event()
        self._look_at_us = self._next_look_us()
        self._looks = 0
        self._claiming: asyncio.Future[tuple[DueTrigger, ...]] | None = None
        receivers.enter(self)

    async def share(self, partition: int) -> None:
        """Deliver the queue's due triggers, side by side with its other receivers."""
        await self.subscribe([(partition, SHARED)])

    async def subscribe(self, subscriptions: Iterable[tuple[int, int]]) -> None:
        """Begin to deliver these (partition, epoch); those that a newer owner receives end at once."""
        wanted = [Subscription(partition, epoch, self.session) for partition, epoch in subscriptions]
        asked_us = self._clock_us()
        # Watch before the store answers: whatever is published after its answer must find a listener.
        watched = {each.partition: WatchedPartition(each, self._lead_ms) for each in wanted}
        former = {each.partition: self._watched.get(each.partition) for each in wanted}
        self._watched.update(watched)
        for subscription, answer in zip(wanted, await self._whole(self._store.subscribe(wanted)), strict=True):
            partition = subscription.partition
            before = former[partition]
            if isinstance(answer, Survey):
                watched[partition].confirmed = True
                self._surveyed(watched[partition], answer, asked_us, self._clock_us())
                if subscription.epoch != SHARED:
                    self._receivers.hear(NewReceiver(subscription))
            elif before is not None and before.subscription.epoch == answer:
                # The higher epoch belongs to this stream itself, so its subscription stays.
                before.expect(Heads(watched[partition].due_ms))
                self._watched[partition] = before
            else:
                self._end(partition)
        self._stirred.set()

    def unsubscribe(self, partitions: Iterable[int]) -> None:
        """Stop delivering these; claims that exist already may still be answered."""
        for partition in partitions:
            self._watched.pop(partition, None)

    async def answer(self, acks: Sequence[Ack], nacks: Sequence[Nack], extensions: Sequence[Extension]) -> None:
        """Settle claims; the next parcel lists tokens whose claims are void."""
        if acks:
            with_next = [await self._planned(ack) for ack in acks]
            settlement = await self._whole(self._store.ack(with_next, self.session))
            self._settled(settlement, [ack.token for ack in acks])
        if nacks:
            settlement = await self._whole(self._store.nack(nacks, self.session))
            self._settled(settlement, [nack.token for nack in nacks])
        if extensions:
            self._settled(await self._whole(self._store.extend(extensions)), ())
            for extension in extensions:
                self._held.extend(extension.token, self._clock_us() + extension.lease_ms * 1000)

    def lose(self, tokens: Iterable[str]) -> None:
        """Tell the receiver that the claims of these tokens are void."""
        self._lost += tokens
        if len(self._lost) > MOST_LOST:
            self._heard.clear()
        self._stirred.set()

    async def heard(self) -> None:
        """Wait while too many tokens of void claims are unreported: a receiver that does not read has to wait."""
        await self._heard.wait()

    async def next(self) -> Parcel:
        """Wait until there is something to tell the receiver, and return it."""
        while True:
            self._stirred.clear()
            due = await self._claim()
            if due or self._lost or self._ended or self._listened:
                count_delivered(due)
                if self._traces is not None:
                    due = self._traces(due)
                parcel = Parcel(due, tuple(self._lost), tuple(self._ended), tuple(self._listened))
                self._lost, self._ended, self._listened = [], [], set()
                self._heard.set()
                return parcel
            await self._rest()

    def close(self) -> None:
        """End the delivery and give back all claims, including those that a claim order under way still brings."""
        self._receivers.leave(self)
        self._watched.clear()
        self._receivers.leave_behind(self._give_all_back())

    def expect(self, partition: int, due_ms: int) -> None:
        watched = self._watched.get(partition)
        if watched is not None:
            watched.expect(Heads(due_ms))
            self._stirred.set()

    def doubt(self, partition: int, session: str) -> None:
        watched = self._watched.get(partition)
        if watched is not None and session != self.session:
            watched.doubted = True
            self._stirred.set()

    def listened(self, name: str) -> None:
        if name in self._listeners_of:
            self._listened.add(name)
            self._stirred.set()

    def look(self) -> None:
        self._look_at_us = 0
        self._stirred.set()

    async def _claim(self) -> tuple[DueTrigger, ...]:
        now_us = self._clock_us()
        ready = sorted(
            (next_us, partition)
            for partition, watched in self._watched.items()
            if (next_us := watched.next_us()) is not None and next_us <= now_us
        )
        if not ready:
            return ()
        share, rest = divmod(min(self._held.room(now_us), _CLAIMED_AT_ONCE), len(ready))
        limits = {
            partition: limit
            for at, (_, partition) in enumerate(ready)
            if (limit := share + (at < rest)) or self._watched[partition].doubted
        }
        if not limits:
            return ()
        watched = {self._watched[partition]: limit for partition, limit in limits.items()}
        # If the stream is cut off meanwhile, the claims must still be given back.
        self._claiming = self._receivers.carry_out(self._claim_up_to(watched))
        return await asyncio.shield(self._claiming)

    async def _claim_up_to(self, limits: dict[WatchedPartition, int]) -> tuple[DueTrigger, ...]:
        nonce = secrets.token_hex(6)
        orders = []
        lead = Lead(self._lead_ms, len(self._watched))
        for each, limit in limits.items():
            each.claiming()
            orders.append(ClaimOrder(each.subscription, limit, self._lease_ms, nonce, lead))
        asked_us = self._clock_us()
        try:
            answers = await self._store.claim_due(orders)
        except Exception:
            # The store may have carried the orders out all the same, or may do so when it wakes.
            self._receivers.leave_behind(self._withdraw(orders))
            raise
        answered_us = self._clock_us()
        due: list[DueTrigger] = []
        for each, answer in zip(limits, answers, strict=True):
            alarm(answer.dead, answer.orphans)
            if self._watched.get(each.subscription.partition) is not each:
                # The partition was unsubscribed, or subscribed anew, while the claim was under way.
                self._receivers.leave_behind(self._give_back([token_of(one) for one in answer.due]))
            elif answer.survey is None:
                self._end(each.subscription.partition)
            else:
                self._surveyed(each, answer.survey, asked_us, answered_us)
                self._held.add(answer.due, each.time.offset_us)
                due += answer.due
        return tuple(due)

    def _end(self, partition: int) -> None:
        if self._watched.pop(partition, None) is not None:
            self._ended.append(partition)
            self._stirred.set()
            self._receivers.leave_behind(self._give_back(self._held.take(partition)))

    async def _rest(self) -> None:
        now_us = self._clock_us()
        if self._watched and now_us >= self._look_at_us:
            await self._look_around()
            return
        wakes = [self._look_at_us] if self._watched else []
        if self._held.room(now_us):
            nexts = [watched.next_us() for watched in self._watched.values()]
            wakes += [next_us + _LATE_US for next_us in nexts if next_us is not None]
        elif (lapse_us := self._held.first_lapse_us()) is not None:
            wakes.append(lapse_us)
        if not wakes:
            await self._stirred.wait()
            return
        loop = asyncio.get_running_loop()
        alarm_clock = loop.call_later(max(_LEAST_REST_S, (min(wakes) - now_us) / 1e6), self._stirred.set)
        try:
            await self._stirred.wait()
        finally:
            alarm_clock.cancel()

    async def _look_around(self) -> None:
        """Ask the store what is due, in case a wake was lost: one round trip, which surveys one partition in turn."""
        partitions = list(self._watched)
        self._looks += 1
        surveyed = partitions[self._looks % len(partitions)]
        asked_us = self._clock_us()
        self._look_at_us = self._next_look_us()
        heads, survey = await self._whole(self._store.look(partitions, surveyed))
        for partition, due_ms in heads.items():
            if partition in self._watched:
                self._watched[partition].expect(Heads(due_ms))
        if surveyed in self._watched:
            self._surveyed(self._watched[surveyed], survey, asked_us, self._clock_us())

    def _next_look_us(self) -> int:
        return int(beat_after(self._clock_us(), self._fallback_us))

    def _surveyed(self, watched: WatchedPartition, survey: Survey, asked_us: int, answered_us: int) -> None:
        if watched.surveyed(survey, asked_us, answered_us) > _JUMP_US:
            # No partition may sleep by the old clock; a claim order brings the new time.
            for each in self._watched.values():
                each.doubted = True
            self._stirred.set()

    async def _planned(self, ack: Ack) -> Ack:
        """Return the ack, with the next planned time if the store cannot compute it."""
        token = ack.token
        if self._held.holds(token):
            trigger = self._held.unplanned(token)
        else:
            trigger = await self._store.find(token.partition, token.trigger_id)
        return ack if trigger is None else planned(ack, trigger, await self._store_ms(token.partition))

    async def _store_ms(self, partition: int) -> int:
        watched = self._watched.get(partition)
        if watched is not None:
            return (self._clock_us() + watched.time.offset_us) // 1000
        _, survey = await self._store.look([], partition)
        return survey.now_us // 1000

    async def _whole(self, call: Coroutine[Any, Any, Result]) -> Result:
        return await asyncio.shield(self._receivers.carry_out(call))

    def _settled(self, settlement: Settlement, ended: Iterable[Token]) -> None:
        alarm(settlement.dead)
        for token in ended:
            self._held.drop(token)
        for lost in filter(None, map(Token.parse, settlement.lost)):
            self._held.drop(lost)
        for partition, heads in settlement.heads.items():
            if partition in self._watched:
                self._watched[partition].expect(heads)
            elif heads.due_ms is not None:
                self._receivers.hear(EarlierDue(partition, heads.due_ms))
        self.lose(settlement.lost)

    async def _give_all_back(self) -> None:
        if self._claiming is not None:
            await asyncio.gather(self._claiming, return_exceptions=True)
        await self._give_back(self._held.take())

    async def _give_back(self, tokens: Sequence[Token]) -> None:
        if not tokens:
            return
        try:
            settlement = await self._store.give_back(tokens, self.session)
        except Exception as error:
            # Nothing is lost: the leases lapse, and the receiver of that time gets the triggers.
            _log.warning("claims_not_given_back", count=len(tokens), error=str(error))
            return
        for partition, heads in settlement.heads.items():
            if heads.due_ms is not None:
                self._receivers.hear(EarlierDue(partition, heads.due_ms))

    async def _withdraw(self, orders: Sequence[ClaimOrder]) -> None:
        """Withdraw orders until the store has answered twice: when it wakes, it may see the first before the orders."""
        wanted, trouble = 2, ""
        # Count tries, not seconds: with a store that hangs, a try takes longer, and leases begin only when it wakes.
        for _ in range(max(wanted, self._lease_ms // 1000)):
            try:
                await self._store.withdraw(orders)
                wanted, trouble = wanted - 1, ""
            except Exception as error:
                trouble = str(error)
            if not wanted or not await self._receivers.pause(_AGAIN_S):
                return
        if trouble:
            # Nothing is lost: as with claims that are not given back, the leases lapse.
            partitions = [each.subscription.partition for each in orders]
            _log.warning("orders_not_withdrawn", partitions=partitions, error=trouble)
