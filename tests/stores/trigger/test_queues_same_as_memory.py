"""Random operations on the triggers of queues: memory and Redis must answer alike all the time."""

import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from tests.servers import RedisServer, assert_no_leaked_keys
from tests.stores.machines import StoreMachine, run_histories, together
from tests.stores.trigger.bench import DAY, HOUR, BothPorts, memory_store, queue_store, redis_store, token
from tradewind.server.clock import ManualClock
from tradewind.server.schedules.event_filter import EventFilter
from tradewind.server.schedules.grids import CronGrid, IntervalGrid
from tradewind.trigger.domain.claim import SHARED, Ack, Nack, Subscription
from tradewind.trigger.domain.errors import QueueFull, StaleEpoch
from tradewind.trigger.domain.event import Event, firing_id
from tradewind.trigger.domain.policy import Policy
from tradewind.trigger.domain.schedule import Delay, Kind, Once, OnEvent, Schedule
from tradewind.trigger.domain.trigger import TriggerDraft
from tradewind.trigger.ports.claims import ClaimOrder
from tradewind.trigger.ports.queues import FiringOrder, QueueStore
from tradewind.trigger.ports.triggers import Page
from tradewind.trigger.stores.redis_doctor import RedisIndexExaminer
from tradewind.trigger.stores.redis_queues import RedisQueueStore

POLICY = Policy(
    max_failures=2, dead_kept=3, firings_kept=6, max_pending=2, max_queue_triggers=3, max_listeners=2, repeat_ms=HOUR
)
START = ManualClock().now_ms()
QUEUES = ("q", "r.s")
IDS = ("a", "b", "c", "d")
EVENTS = ("e1", "e2", "e3")
INDEXES = ("due", "claimed", "dead", "all")

queues = st.sampled_from(["q", "q", "q", "r.s"])
ids = st.sampled_from(IDS)
kinds: st.SearchStrategy[Kind] = st.sampled_from(
    [
        Once(START + 500),
        IntervalGrid(1000, START),
        CronGrid("* * * * * *"),
        Delay(700),
        OnEvent("tick", EventFilter("")),
        OnEvent("tick", EventFilter('{"n": {"$gt": 1}}')),
        OnEvent("tock", EventFilter("")),
    ]
)
schedules = st.builds(
    Schedule,
    kinds,
    jitter_ms=st.sampled_from([0, 0, 900]),
    end_ms=st.sampled_from([0, 0, START + 30_000]),
    max_firings=st.integers(0, 2),
)
ANSWERS = ("ack", "ack", "finish", "nack", "nack", "give back", "none")
picks = st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True)

Stores = tuple[BothPorts, QueueStore]


class QueueTwins(StoreMachine):
    """Memory and one Redis under one clock, each with two queues in one partition."""

    def __init__(self, server: RedisServer) -> None:
        super().__init__(server)
        self.nonces = itertools.count()
        self.tokens: list[tuple[str, str]] = []
        memory, redis = memory_store(self.clock, POLICY), redis_store(server, self.clock, POLICY)
        self.stores = [(each, queue_store(server, each, POLICY)) for each in (memory, redis)]
        of_redis = self.stores[1][1]
        assert isinstance(of_redis, RedisQueueStore)
        self.of_redis = of_redis

    def both(self, call: Callable[[BothPorts, QueueStore], Awaitable[Any]]) -> Any:
        expected, found = (self.outcome(call, *stores) for stores in self.stores)
        assert found == expected
        return found

    def outcome(
        self, call: Callable[[BothPorts, QueueStore], Awaitable[Any]], triggers: BothPorts, queues: QueueStore
    ) -> Any:
        try:
            return self.run(call(triggers, queues))
        except StaleEpoch as refusal:
            return str(refusal)
        except QueueFull:
            return "full"

    @initialize(kept=st.lists(schedules, min_size=2, max_size=2), listens=schedules)
    def begin(self, kept: list[Schedule], listens: Schedule) -> None:
        """Begin with two triggers of any kind and one for events, as many as a queue may have."""
        for id, schedule in zip(IDS, [*kept, replace(listens, kind=OnEvent("tick", EventFilter("")))], strict=False):
            self.save("q", id, schedule, 0, "1")

    @rule(queue=queues, id=ids, schedule=schedules, epoch=st.sampled_from([0, 0, 0, 1]), payload=st.sampled_from("12"))
    def save(self, queue: str, id: str, schedule: Schedule, epoch: int, payload: str) -> None:
        draft = TriggerDraft(id, queue, schedule, payload, epoch)
        self.both(lambda triggers, _: triggers.of_queue(queue).save(0, draft))

    @rule(queue=queues, id=ids)
    def remove(self, queue: str, id: str) -> None:
        self.both(lambda triggers, _: triggers.of_queue(queue).remove(0, id, 1))

    @rule(ms=st.sampled_from([1, 500, 1000, 30_000, HOUR, DAY, 7 * DAY]))
    def advance(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule(queue=queues, id=ids)
    def pause(self, queue: str, id: str) -> None:
        self.both(lambda _, queues: queues.pause(0, queue, id, "för a while"))

    @rule(queue=queues, id=ids, late=st.booleans(), seen=st.booleans())
    def resume(self, queue: str, id: str, late: bool, seen: bool) -> None:
        known = self.run(self.stores[0][0].of_queue(queue).find(0, id))
        seen_ms = known.planned_ms if known and seen else 1
        planned_ms = self.clock.now_ms() + 700 if late else None
        self.both(lambda _, queues: queues.resume(0, queue, id, seen_ms, planned_ms))

    @rule(
        name=st.sampled_from(["tick", "tick", "tock", "none"]),
        id=st.sampled_from(EVENTS),
        start_ms=st.sampled_from([0, 0, START + 700, START + HOUR]),
    )
    def publish(self, name: str, id: str, start_ms: int) -> None:
        listeners = self.both(lambda _, queues: _sorted(queues.listeners(name)))
        orders = [FiringOrder(one.partition, one.queue, one.trigger_id, start_ms) for one in listeners]
        self.both(lambda _, queues: queues.fire(orders, Event(id, name, '{"n": 2}')))

    @rule(queue=queues, id=ids, event=st.sampled_from(EVENTS), by_hand=st.booleans())
    def fire(self, queue: str, id: str, event: str, by_hand: bool) -> None:
        orders = [FiringOrder(0, queue, id), FiringOrder(0, queue, "missing")]
        self.both(lambda _, queues: queues.fire(orders, Event(event, "tick", ""), by_hand=by_hand))

    @rule(queue=queues, limit=st.integers(1, 4), lease_ms=st.sampled_from([1, 1000, HOUR]))
    def claim(self, queue: str, limit: int, lease_ms: int) -> None:
        order = ClaimOrder(Subscription(0, SHARED, "s1"), limit, lease_ms, f"n{next(self.nonces)}")
        (claims,) = self.both(lambda triggers, _: triggers.of_queue(queue).claim_due([order]))
        self.tokens += [(queue, due.token) for due in claims.due]

    @rule(queue=queues, limit=st.integers(1, 3), answer=st.sampled_from(ANSWERS), times=st.integers(1, 3))
    def deliver(self, queue: str, limit: int, answer: str, times: int) -> None:
        """Claim what is due next and answer it at once, several times."""
        for _ in range(times):
            _, survey = self.run(self.stores[0][0].of_queue(queue).poll([], survey=0))
            if survey.heads.due_ms is not None:
                self.clock.advance(max(0, survey.heads.due_ms - self.clock.now_ms()))
            known = len(self.tokens)
            self.claim(queue, limit, 1000)
            claimed = list(range(len(self.tokens) - known))
            match answer:
                case "ack" | "finish":
                    self.ack(claimed, None, answer == "finish")
                case "nack":
                    self.nack(claimed, 0)
                case "give back":
                    self.give_back(claimed)

    @precondition(lambda self: self.tokens)
    @rule(picks=picks, later=st.sampled_from([None, 500]), finished=st.booleans())
    def ack(self, picks: list[int], later: int | None, finished: bool) -> None:
        for queue, text in self.picked(picks):
            known = self.run(self.stores[0][0].of_queue(queue).find(0, token(text).trigger_id))
            next_ms = known.planned_ms + later if known and later else None
            self.both(lambda triggers, _: triggers.of_queue(queue).ack([Ack(token(text), next_ms, finished)], "s1"))  # noqa: B023

    @precondition(lambda self: self.tokens)
    @rule(picks=picks, retry_after_ms=st.sampled_from([None, 0, 700]))
    def nack(self, picks: list[int], retry_after_ms: int | None) -> None:
        for queue, text in self.picked(picks):
            self.both(
                lambda triggers, _: triggers.of_queue(queue).nack([Nack(token(text), retry_after_ms, "no")], "s1")  # noqa: B023
            )

    @precondition(lambda self: self.tokens)
    @rule(picks=picks)
    def give_back(self, picks: list[int]) -> None:
        for queue, text in self.picked(picks):
            self.both(lambda triggers, _: triggers.of_queue(queue).give_back([token(text)], "s1"))  # noqa: B023

    def picked(self, picks: list[int]) -> list[tuple[str, str]]:
        return list(dict.fromkeys(self.tokens[-1 - pick % len(self.tokens)] for pick in picks))

    @rule(queue=queues, id=ids, event=st.sampled_from(["", *EVENTS]))
    def redrive(self, queue: str, id: str, event: str) -> None:
        dead = firing_id(id, event) if event else id
        self.both(lambda _, queues: queues.redrive(0, queue, dead))

    @rule(queue=queues, index=st.sampled_from(INDEXES))
    def sweep(self, queue: str, index: str) -> None:
        """When nothing has been lost, a sweep removes only firings of removed triggers."""
        swept = self.both(lambda _, queues: queues.sweep(0, queue, index, 0))
        assert (swept.orphans, swept.mended) == ((), ())

    @rule(queue=queues)
    def examine(self, queue: str) -> None:
        """Check that a doctor finds nothing, whatever has happened."""
        for index in INDEXES:
            found = self.run(RedisIndexExaminer(self.of_redis, 0, queue, index)("", 100, None, False))
            assert found.findings == ()

    def teardown(self) -> None:
        try:
            for queue, id in itertools.product(QUEUES, IDS):
                self.remove(queue, id)
            for queue, index in itertools.product(QUEUES, INDEXES):
                self.sweep(queue, index)
        finally:
            super().teardown()

    async def at_the_end(self) -> None:
        """Check that removed triggers leave nothing but keys that expire."""
        await assert_no_leaked_keys(self.server)

    @invariant()
    def they_hold_the_same(self) -> None:
        self.both(lambda triggers, queues: together(*_everything(triggers, queues)))


def _everything(triggers: BothPorts, queues: QueueStore) -> Iterator[Awaitable[Any]]:
    for queue in QUEUES:
        yield triggers.of_queue(queue).page_scheduled(0, None, None, 100)
        yield triggers.of_queue(queue).page_claimed(0, None, 100)
        yield _triggers(queues.page_all(0, queue, None, 100))
        yield _triggers(queues.page_dead(0, queue, None, 100))
        yield _history(queues, queue)
        yield _counts(queues, queue)
    for name in ("tick", "tock"):
        yield _sorted(queues.listeners(name))
        yield queues.count_listeners(name)


async def _sorted(listeners: Awaitable[Sequence[Any]]) -> Sequence[Any]:
    return sorted(await listeners, key=lambda one: (one.queue, one.trigger_id))


async def _triggers(page: Awaitable[Page]) -> object:
    return (await page).triggers


async def _history(queues: QueueStore, queue: str) -> object:
    found, position = await queues.firings(0, queue, "", 4)
    rest, end = await queues.firings(0, queue, position, 4) if position else ([], "")
    return [*found, *rest], end


async def _counts(queues: QueueStore, queue: str) -> object:
    # Triggers past their retention leave these two indexes only when a sweep removes them.
    return replace(await queues.counts(0, queue), triggers=0, dead=0)


def test_memory_and_redis_answer_alike(running_redis: RedisServer) -> None:
    run_histories(QueueTwins, running_redis, 20)
