"""Delivers due triggers to one receiver: sleeps until something is due, claims it, and settles the answers."""

import asyncio
import secrets
import time
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from tradewind.server.beats import beat_after
from tradewind.server.faults import Unavailable
from tradewind.server.schedules.grids import UnknownZone
from tradewind.server.schedules.unknown_zones import RETRY_MS, log_unknown_zone
from tradewind.trigger.domain.claim import SHARED, Ack, DueTrigger, Extension, Nack, Subscription, Token
from tradewind.trigger.domain.lead import Lead
from tradewind.trigger.metrics import count_delivered
from tradewind.trigger.ports.claims import ClaimOrder, Heads, Settlement, Survey
from tradewind.trigger.ports.stores import TriggersOfQueue
from tradewind.trigger.ports.wakes import EarlierDue, NewReceiver
from tradewind.trigger.use_cases.held_claims import HeldClaims, token_of
from tradewind.trigger.use_cases.log_losses import log_dead, log_orphans
from tradewind.trigger.use_cases.parcel import Opening, Parcel
from tradewind.trigger.use_cases.receivers import Receivers
from tradewind.trigger.use_cases.return_claims import ReturnClaims
from tradewind.trigger.use_cases.trace_firings import TraceFirings
from tradewind.trigger.use_cases.watched_partition import WatchedPartition

_CLAIM_DELAY_US = 300
"""How long after the due time a claim is sent, so that it does not reach the store just before that time."""

_MIN_SLEEP_S = 0.0005
"""How long the next try waits at least, after a claim that came too early all the same."""

_CLAIM_BATCH = 256
"""How many triggers are claimed before they are sent: the first of a thousand need not wait for the last."""

MAX_UNREPORTED_TOKENS = 10_000
"""A receiver's messages are not read while more tokens of void claims than this wait to be reported to it."""

_CLOCK_JUMP_US = 5_000
"""If the store's clock has jumped by more than this, every partition is asked for its time again."""

Result = TypeVar("Result")


def local_us() -> int:
    """Return microseconds by a clock that nobody can set."""
    return time.monotonic_ns() // 1000


class Delivery:
    """One receiver's stream. One task calls `next`; others may call the other methods meanwhile.

    The store is polled every `poll_s`, in case a wake was lost.
    """

    def __init__(
        self,
        store: TriggersOfQueue,
        receivers: Receivers,
        opening: Opening,
        lease_ms: int,
        poll_s: float,
        traces: TraceFirings | None = None,
    ) -> None:
        self.session = secrets.token_hex(8)
        self._store = store
        self._receivers = receivers
        self._opening = opening
        self._lease_ms = lease_ms
        self._poll_us = int(poll_s * 1_000_000)
        self._traces = traces
        self._held = HeldClaims(opening.credits)
        self._returns = ReturnClaims(store, receivers, self.session, lease_ms)
        self._watched: dict[int, WatchedPartition] = {}
        self._lost: list[str] = []
        self._ended: list[int] = []
        self._new_listeners: set[str] = set()
        self._reader_ready = asyncio.Event()
        self._reader_ready.set()
        self._store_lost = False
        self._woken = asyncio.Event()
        self._next_poll_us = self._next_poll_time_us()
        self._polls = 0
        self._claiming: asyncio.Future[tuple[DueTrigger, ...]] | None = None
        receivers.add(self)

    async def share(self, partition: int) -> None:
        """Deliver the queue's due triggers, side by side with its other receivers."""
        await self.subscribe([(partition, SHARED)])

    async def subscribe(self, subscriptions: Iterable[tuple[int, int]]) -> None:
        """Begin to deliver these (partition, epoch); those that a newer owner receives end at once."""
        wanted = [Subscription(partition, epoch, self.session) for partition, epoch in subscriptions]
        asked_us = local_us()
        # Watch before the store answers: whatever is published after its answer must find a listener.
        watched = {each.partition: WatchedPartition(each, self._opening.lead_ms) for each in wanted}
        former = {each.partition: self._watched.get(each.partition) for each in wanted}
        self._watched.update(watched)
        for subscription, answer in zip(wanted, await self._run_to_end(self._store.subscribe(wanted)), strict=True):
            partition = subscription.partition
            before = former[partition]
            if answer is None:
                watched[partition].unreadable = True
            elif isinstance(answer, Survey):
                watched[partition].confirmed = True
                self._apply_survey(watched[partition], answer, asked_us, local_us())
                if subscription.epoch != SHARED:
                    self._receivers.notify(NewReceiver(subscription))
            elif before is not None and before.subscription.epoch == answer:
                # The higher epoch belongs to this stream itself, so its subscription stays.
                before.expect(Heads(watched[partition].due_ms))
                self._watched[partition] = before
            else:
                self._end(partition)
        self._woken.set()

    def unsubscribe(self, partitions: Iterable[int]) -> None:
        """Stop delivering these; claims that exist already may still be answered."""
        for partition in partitions:
            self._watched.pop(partition, None)

    async def answer(self, acks: Sequence[Ack], nacks: Sequence[Nack], extensions: Sequence[Extension]) -> None:
        """Settle claims; the next parcel lists tokens whose claims are void."""
        if acks:
            with_next = list(filter(None, [await self._with_next_time(ack) for ack in acks]))
            settlement = await self._run_to_end(self._store.ack(with_next, self.session))
            self._apply_settlement(settlement, [ack.token for ack in with_next])
        if nacks:
            settlement = await self._run_to_end(self._store.nack(nacks, self.session))
            self._apply_settlement(settlement, [nack.token for nack in nacks])
        if extensions:
            self._apply_settlement(await self._run_to_end(self._store.extend(extensions)), ())
            for extension in extensions:
                self._held.extend(extension.token, local_us() + extension.lease_ms * 1000)

    def report_lost(self, tokens: Iterable[str]) -> None:
        """Report to the receiver that the claims of these tokens are void."""
        self._lost += tokens
        if len(self._lost) > MAX_UNREPORTED_TOKENS:
            self._reader_ready.clear()
        self._woken.set()

    async def wait_for_reader(self) -> None:
        """Wait while too many tokens of void claims are unreported: a receiver that does not read has to wait."""
        await self._reader_ready.wait()

    async def next(self) -> Parcel:
        """Wait until there is something to send to the receiver, and return it.

        Raises Unavailable when the store was away: the receiver then also tells again what the store may have lost.
        """
        while True:
            self._woken.clear()
            if self._store_lost:
                raise Unavailable("STORE_UNAVAILABLE", "the store was away, and may have lost writes", 0.1)
            due = await self._claim()
            if due or self._lost or self._ended or self._new_listeners:
                count_delivered(due)
                if self._traces is not None:
                    due = self._traces(due)
                parcel = Parcel(due, tuple(self._lost), tuple(self._ended), tuple(self._new_listeners))
                self._lost, self._ended, self._new_listeners = [], [], set()
                self._reader_ready.set()
                return parcel
            await self._sleep()

    def last(self) -> Parcel:
        """Return what is left to be reported to a receiver that has ended its side and gets nothing more."""
        return Parcel(lost=tuple(self._lost))

    def close(self) -> None:
        """End the delivery and give back all claims, including those that a claim order under way still brings."""
        self._receivers.remove(self)
        self._watched.clear()
        self._receivers.run_in_background(self._give_back_all())

    def expect(self, partition: int, due_ms: int) -> None:
        watched = self._watched.get(partition)
        if watched is not None:
            watched.expect(Heads(due_ms))
            self._woken.set()

    def recheck_receiver(self, partition: int, session: str) -> None:
        watched = self._watched.get(partition)
        if watched is not None and session != self.session:
            watched.recheck = True
            self._woken.set()

    def listener_added(self, name: str) -> None:
        if name in self._opening.listeners_of:
            self._new_listeners.add(name)
            self._woken.set()

    def poll_now(self) -> None:
        self._next_poll_us = 0
        self._woken.set()

    def store_lost(self) -> None:
        self._store_lost = True
        self._woken.set()

    async def _claim(self) -> tuple[DueTrigger, ...]:
        now_us = local_us()
        ready = sorted(
            (next_us, partition)
            for partition, watched in self._watched.items()
            if (next_us := watched.next_us()) is not None and next_us <= now_us
        )
        if not ready:
            return ()
        share, remainder = divmod(min(self._held.room(now_us), _CLAIM_BATCH), len(ready))
        limits = {
            watched: limit
            for at, watched in enumerate(self._watched[partition] for _, partition in ready)
            if (limit := share + (at < remainder)) or watched.recheck
        }
        if not limits:
            return ()
        # If the stream is cut off meanwhile, the claims must still be given back.
        self._claiming = self._receivers.run_to_end(self._claim_up_to(limits))
        return await asyncio.shield(self._claiming)

    async def _claim_up_to(self, limits: dict[WatchedPartition, int]) -> tuple[DueTrigger, ...]:
        nonce = secrets.token_hex(6)
        orders = []
        lead = Lead(self._opening.lead_ms, len(self._watched))
        for each, limit in limits.items():
            each.begin_claim()
            orders.append(ClaimOrder(each.subscription, limit, self._lease_ms, nonce, lead))
        asked_us = local_us()
        try:
            answers = await self._store.claim_due(orders)
        except Exception:
            # The store may have carried the orders out all the same, or may do so when it wakes.
            self._receivers.run_in_background(self._returns.withdraw(orders))
            raise
        answered_us = local_us()
        due: list[DueTrigger] = []
        for each, answer in zip(limits, answers, strict=True):
            if not answer.readable:
                # The next poll says whether there is something to claim.
                continue
            log_dead(answer.dead)
            log_orphans(answer.orphans)
            if self._watched.get(each.subscription.partition) is not each:
                # The partition was unsubscribed, or subscribed anew, while the claim was under way.
                self._receivers.run_in_background(self._returns.give_back([token_of(one) for one in answer.due]))
            elif answer.survey is None:
                self._end(each.subscription.partition)
            else:
                self._apply_survey(each, answer.survey, asked_us, answered_us)
                known = self._without_unknown_zones(answer.due)
                self._held.add(known, each.time.offset_us)
                due += known
        return tuple(due)

    def _without_unknown_zones(self, due: Sequence[DueTrigger]) -> Sequence[DueTrigger]:
        """Postpone triggers whose next time cannot be computed here, for a replica that can, and return the others."""
        unknown = {one.token: zone for one in due if (zone := one.trigger.schedule.unknown_zone)}
        if not unknown:
            return due
        for zone in unknown.values():
            log_unknown_zone(zone)
        nacks = [
            Nack(token_of(one), RETRY_MS, str(UnknownZone(unknown[one.token])), postponed=True)
            for one in due
            if one.token in unknown
        ]
        self._receivers.run_in_background(self.answer((), nacks, ()))
        return [one for one in due if one.token not in unknown]

    def _end(self, partition: int) -> None:
        if self._watched.pop(partition, None) is not None:
            self._ended.append(partition)
            self._woken.set()
            self._receivers.run_in_background(self._returns.give_back(self._held.pop(partition)))

    async def _sleep(self) -> None:
        now_us = local_us()
        if self._watched and now_us >= self._next_poll_us:
            await self._poll()
            return
        wakes: list[float] = [self._next_poll_us] if self._watched else []
        if self._held.room(now_us):
            nexts = [watched.next_us() for watched in self._watched.values()]
            wakes += [next_us + _CLAIM_DELAY_US for next_us in nexts if next_us is not None]
        else:
            wakes.append(self._held.next_look_us())
        if not wakes:
            await self._woken.wait()
            return
        loop = asyncio.get_running_loop()
        wake_timer = loop.call_later(max(_MIN_SLEEP_S, (min(wakes) - now_us) / 1e6), self._woken.set)
        try:
            await self._woken.wait()
        finally:
            wake_timer.cancel()

    async def _poll(self) -> None:
        """Ask the store what is due, in case a wake was lost: one round trip, which surveys one partition in turn."""
        partitions = list(self._watched)
        self._polls += 1
        surveyed = partitions[self._polls % len(partitions)]
        asked_us = local_us()
        self._next_poll_us = self._next_poll_time_us()
        heads, survey = await self._run_to_end(self._store.poll(partitions, surveyed))
        for partition, due_ms in heads.items():
            if partition in self._watched:
                self._watched[partition].expect(Heads(due_ms))
        if surveyed in self._watched:
            self._apply_survey(self._watched[surveyed], survey, asked_us, local_us())
        unreadable = [each.subscription for each in self._watched.values() if each.unreadable]
        if unreadable:
            await self.subscribe([(each.partition, each.epoch) for each in unreadable])

    def _next_poll_time_us(self) -> int:
        return int(beat_after(local_us(), self._poll_us))

    def _apply_survey(self, watched: WatchedPartition, survey: Survey, asked_us: int, answered_us: int) -> None:
        if watched.apply_survey(survey, asked_us, answered_us) > _CLOCK_JUMP_US:
            # No partition may sleep by the old clock; a claim order brings the new time.
            for each in self._watched.values():
                each.recheck = True
            self._woken.set()

    async def _with_next_time(self, ack: Ack) -> Ack | None:
        """Return the ack, with the next planned time if the store cannot compute it.

        If its time zone is not known here, the trigger is delivered again: the token is reported as lost.
        """
        token = ack.token
        if self._held.holds(token):
            trigger = self._held.unplanned(token)
        else:
            trigger = await self._store.find(token.partition, token.trigger_id)
        try:
            return ack if trigger is None else ack.with_next_time(trigger, await self._store_ms(token.partition))
        except UnknownZone:
            self.report_lost([token.text])
            return None

    async def _store_ms(self, partition: int) -> int:
        watched = self._watched.get(partition)
        if watched is not None:
            return (local_us() + watched.time.offset_us) // 1000
        _, survey = await self._store.poll([], partition)
        return survey.now_us // 1000

    async def _run_to_end(self, call: Coroutine[Any, Any, Result]) -> Result:
        return await asyncio.shield(self._receivers.run_to_end(call))

    def _apply_settlement(self, settlement: Settlement, ended: Iterable[Token]) -> None:
        log_dead(settlement.dead)
        for token in ended:
            self._held.drop(token)
        for lost in filter(None, map(Token.parse, settlement.lost)):
            self._held.drop(lost)
        for partition, heads in settlement.heads.items():
            if partition in self._watched:
                self._watched[partition].expect(heads)
            elif heads.due_ms is not None:
                self._receivers.notify(EarlierDue(partition, heads.due_ms))
        self.report_lost(settlement.lost)

    async def _give_back_all(self) -> None:
        if self._claiming is not None:
            await asyncio.gather(self._claiming, return_exceptions=True)
        await self._returns.give_back(self._held.pop())
