"""The same random operations run on memory and Redis, which must always answer alike."""

import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    invariant,
    precondition,
    rule,
)

from tests.servers import RedisServer
from tests.stores.machines import TwinStores, run_histories, together
from tests.stores.trigger.bench import DAY, HOUR, BothPorts, memory_store, queue_store, redis_store, token
from tradewind.server.clock import ManualClock
from tradewind.server.schedules.grids import LAST_MS, CronGrid, IntervalGrid, TimesGrid
from tradewind.trigger.domain.claim import Ack, Extension, Nack, Subscription, Token
from tradewind.trigger.domain.errors import StaleEpoch
from tradewind.trigger.domain.lead import NO_LEAD, Lead
from tradewind.trigger.domain.policy import Policy
from tradewind.trigger.domain.schedule import Once, Schedule
from tradewind.trigger.domain.trigger import TriggerDraft
from tradewind.trigger.ports.claims import ClaimOrder, Survey
from tradewind.trigger.ports.triggers import Position

POLICY = Policy(max_failures=3, dead_kept=2, firings_kept=4, backoff_max_ms=3000)
START = ManualClock().now_ms()

IDS = ["a", "b", "c.d", "e-f"]
ids = st.sampled_from(IDS)
partitions = st.sampled_from([0, 0, 0, 1])
epochs = st.sampled_from([1, 1, 1, 0, 2, 3])
sessions = st.sampled_from(["s1", "s2"])
times = st.integers(0, 20).map(lambda tick: START + 500 * tick)
kinds = (
    st.builds(Once, times)
    | st.builds(IntervalGrid, st.sampled_from([1, 700, 1000, LAST_MS]), times)
    | st.sampled_from([CronGrid("* * * * * *"), CronGrid("*/2 * * * * *", "Europe/Berlin")])
    | st.builds(TimesGrid, st.lists(times, min_size=1, max_size=3).map(tuple))
)
windowed = st.builds(
    Schedule,
    kinds,
    jitter_ms=st.sampled_from([0, 900]),
    # Bounds that leave something of every kind.
    start_ms=st.sampled_from([0, START]),
    end_ms=st.sampled_from([0, START + 30_000]),
    max_firings=st.integers(0, 2),
)
schedules = kinds.map(Schedule) | windowed
payloads = st.sampled_from(["", "{}", '"ü"'])
delays = st.sampled_from([0, 1, 499, 1000, 30_000])
ANSWERS = ["ack", "ack", "finish", "ack until later", "nack", "nack", "postpone", "extend", "give back", "none"]
picks = st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True)


class Twins(TwinStores[BothPorts]):
    """Memory and one Redis under one clock."""

    def __init__(self, server: RedisServer) -> None:
        super().__init__(server)
        self.memory = memory_store(self.clock, POLICY)
        self.nonces = itertools.count()
        self.tokens: list[str] = []
        self.receivers = {partition: Subscription(partition, 0, "s1") for partition in (0, 1)}
        self.redis = redis_store(server, self.clock, POLICY)
        self.queues = {store: queue_store(server, store, POLICY) for store in (self.memory, self.redis)}

    def outcome(self, call: Callable[[BothPorts], Awaitable[Any]], store: BothPorts) -> Any:
        try:
            return super().outcome(call, store)
        except StaleEpoch as refusal:
            return str(refusal)

    def picked(self, picks: list[int]) -> list[str]:
        return list(dict.fromkeys(self.tokens[-1 - pick % len(self.tokens)] for pick in picks))

    @rule(partition=partitions, id=ids, schedule=schedules, payload=payloads, epoch=epochs)
    def save(self, partition: int, id: str, schedule: Schedule, payload: str, epoch: int) -> None:
        self.both(lambda store: store.save(partition, TriggerDraft(id, "flow", schedule, payload, epoch)))

    @rule(id=ids, raised=st.sampled_from([0, 1, 1]), payload=payloads)
    def save_again(self, id: str, raised: int, payload: str) -> None:
        known = self.run(self.memory.find(0, id))
        if known is not None:
            self.save(0, id, known.schedule, payload, known.epoch + raised)

    @rule(id=ids)
    def remove_known(self, id: str) -> None:
        known = self.run(self.memory.find(0, id))
        if known is not None:
            self.remove(0, id, known.epoch)

    @rule(partition=partitions, id=ids, epoch=epochs)
    def remove(self, partition: int, id: str, epoch: int) -> None:
        self.both(lambda store: store.remove(partition, id, epoch))

    @initialize(schedules=st.lists(schedules, min_size=4, max_size=4))
    def begin(self, schedules: list[Schedule]) -> None:
        for id, schedule in zip(IDS, schedules, strict=True):
            self.save(0, id, schedule, "{}", 1)

    @rule(ms=st.sampled_from([1, 499, 500, 5000, 30_000, HOUR - 1, HOUR, 7 * DAY]))
    def advance(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule(early=st.sampled_from([0, 0, 0, 1]))
    def advance_to_the_next_event(self, early: int) -> None:
        _, survey = self.run(self.memory.poll([], survey=0))
        events = [ms for ms in (survey.heads.due_ms, survey.heads.lapse_ms) if ms is not None]
        if events:
            self.clock.advance(max(0, min(events) - early - self.clock.now_ms()))

    @rule(partition=partitions, epoch=epochs, session=sessions)
    def subscribe(self, partition: int, epoch: int, session: str) -> None:
        subscription = Subscription(partition, epoch, session)
        (answer,) = self.both(lambda store: store.subscribe([subscription]))
        if isinstance(answer, Survey):
            self.receivers[partition] = subscription

    @rule(partition=partitions, limit=st.integers(1, 4), lease_ms=delays, max_ms=st.sampled_from((0, 25, 1000)))
    def claim(self, partition: int, limit: int, lease_ms: int, max_ms: int) -> None:
        self.claim_as(self.receivers[partition], limit, lease_ms, Lead(max_ms, 3))

    @rule(limit=st.integers(1, 4), lease_ms=delays)
    def claim_once_more(self, limit: int, lease_ms: int) -> None:
        self.claim_as(self.receivers[0], limit, lease_ms)

    @rule(partition=partitions, epoch=epochs, session=sessions)
    def claim_as_anybody(self, partition: int, epoch: int, session: str) -> None:
        self.claim_as(Subscription(partition, epoch, session), 4, 1000)

    def claim_as(self, subscription: Subscription, limit: int, lease_ms: int, lead: Lead = NO_LEAD) -> None:
        order = ClaimOrder(subscription, limit, lease_ms, f"n{next(self.nonces)}", lead)
        (claims,) = self.both(lambda store: store.claim_due([order]))
        if claims.survey is not None:
            self.receivers[subscription.partition] = subscription
        self.tokens += [due.token for due in claims.due]

    @rule(limit=st.integers(1, 3), answer=st.sampled_from(ANSWERS), times=st.integers(1, 3), ms=delays)
    def deliver(self, limit: int, answer: str, times: int, ms: int) -> None:
        """Let the receiver claim what is due next and answer it at once, several times."""
        for _ in range(times):
            self.advance_to_the_next_event(0)
            known = len(self.tokens)
            self.claim_as(self.receivers[0], limit, 1000)
            claimed, session = list(range(len(self.tokens) - known)), self.receivers[0].session
            match answer if claimed else "":
                case "ack":
                    self.ack(claimed, None, False, session)
                case "finish":
                    self.ack(claimed, ms, True, session)
                case "ack until later":
                    self.ack(claimed, ms, False, session)
                case "nack" | "postpone":
                    self.nack(claimed, ms, answer == "postpone", session)
                case "extend":
                    self.extend(claimed, ms)
                case "give back":
                    self.give_back(claimed, session)

    @precondition(lambda self: self.tokens)
    @rule(picks=picks, later=st.none() | delays, finished=st.booleans(), session=sessions)
    def ack(self, picks: list[int], later: int | None, finished: bool, session: str) -> None:
        acks = [Ack(name, self.later(name, later), finished) for name in map(token, self.picked(picks))]
        self.both(lambda store: store.ack(acks, session))

    def later(self, name: Token, later: int | None) -> int | None:
        known = self.run(self.memory.find(name.partition, name.trigger_id))
        return None if known is None or later is None else known.planned_ms + later

    @precondition(lambda self: self.tokens)
    @rule(picks=picks, retry_after_ms=st.none() | delays, postponed=st.booleans(), session=sessions)
    def nack(self, picks: list[int], retry_after_ms: int | None, postponed: bool, session: str) -> None:
        nacks = [Nack(token(text), retry_after_ms, "später", postponed) for text in self.picked(picks)]
        self.both(lambda store: store.nack(nacks, session))

    @precondition(lambda self: self.tokens)
    @rule(picks=picks, lease_ms=delays)
    def extend(self, picks: list[int], lease_ms: int) -> None:
        self.both(lambda store: store.extend([Extension(token(text), lease_ms) for text in self.picked(picks)]))

    @precondition(lambda self: self.tokens)
    @rule(picks=picks, session=sessions)
    def give_back(self, picks: list[int], session: str) -> None:
        self.both(lambda store: store.give_back([token(text) for text in self.picked(picks)], session))

    @precondition(lambda self: self.tokens)
    @rule(picks=picks)
    def withdraw(self, picks: list[int]) -> None:
        nonces = [text.rpartition(":")[2] for text in self.picked(picks)]
        orders = [ClaimOrder(self.receivers[partition], 1, 1000, nonce) for nonce in nonces for partition in (0, 1)]
        self.both(lambda store: store.withdraw(orders))

    @rule(partition=partitions, up_to=st.none() | st.just(0) | times, score=times, id=ids, limit=st.integers(1, 3))
    def page(self, partition: int, up_to: int | None, score: int, id: str, limit: int) -> None:
        self.both(lambda store: store.page_scheduled(partition, up_to, Position(score, id), limit))
        self.both(lambda store: store.page_claimed(partition, Position(score, id), limit))

    @rule(partition=partitions, id=ids)
    def find(self, partition: int, id: str) -> None:
        self.both(lambda store: store.find(partition, id))

    @invariant()
    def they_hold_the_same(self) -> None:
        self.both(lambda store: together(store.poll([0, 1], survey=0), *self.pages(store)))

    def pages(self, store: BothPorts) -> Iterator[Awaitable[Any]]:
        for partition in (0, 1):
            yield store.page_scheduled(partition, None, None, 100)
            yield store.page_claimed(partition, None, 100)
            yield self.queues[store].firings(partition, "", "", 100)


def test_memory_and_redis_answer_alike(running_redis: RedisServer) -> None:
    run_histories(Twins, running_redis, 30)
