"""Due flows: what is asked for them and answered, and when those come back that are delivered early."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from structlog.testing import capture_logs

from tests.unit.scheduler.memory_scheduler import MemoryScheduler
from tests.waiting import until
from tradewind.scheduler.domain.beginning import BeginAnswer, BeginOutcome
from tradewind.scheduler.domain.due import DueAnswer, DueEvent, DueFlow
from tradewind.scheduler.domain.firing import FiringOutcome
from tradewind.scheduler.domain.flow_record import StatusChange
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.loops.due import due_loop
from tradewind.scheduler.ports.owning import Epochs
from tradewind.scheduler.use_cases.background import Background
from tradewind.scheduler.use_cases.begin_cycles import BeginResult, CycleRequest
from tradewind.scheduler.use_cases.begin_due import BeginDue, BegunDue
from tradewind.server.partitions import partition_of


class Stream:
    """Delivers these flows, one list after another, and keeps the answers."""

    def __init__(self, *due: list[DueFlow]) -> None:
        self._due = list(due)
        self.answers: list[DueAnswer] = []

    async def subscribe(self, epochs: Mapping[int, int]) -> None: ...

    async def unsubscribe(self, partitions: Collection[int]) -> None: ...

    async def close(self) -> None: ...

    async def receive(self) -> tuple[list[DueFlow], list[int], bool]:
        if not self._due:
            await asyncio.Event().wait()
        return self._due.pop(), [], False

    async def answer(self, answers: Sequence[DueAnswer]) -> None:
        self.answers += answers


class Owner:
    """Owns partition 0."""

    def __init__(self) -> None:
        self.epochs: Epochs = {0: 1}
        self.lost: set[int] = set()

    def on_change(self, changed: Callable[[], None]) -> None: ...

    def lose(self, partitions: Collection[int], reason: str) -> None:
        self.lost |= set(partitions)


class Begins:
    """Treats everything that is not due yet as too early."""

    def __init__(self) -> None:
        self.asked: list[list[DueFlow]] = []

    async def __call__(self, due: Sequence[DueFlow], epochs: Epochs, *, wait: bool = False) -> BegunDue:
        self.asked.append(list(due))
        early = [flow for flow in due if flow.planned_ms > flow.now_ms]
        return BegunDue([DueAnswer(flow.token) for flow in due if flow not in early], [], early)


class PatientStream(Stream):
    """Delivers the next flows only when the ones before are answered."""

    async def receive(self) -> tuple[list[DueFlow], list[int], bool]:
        delivered = 3 - len(self._due)
        await until(lambda: len(self.answers) == delivered, "the flow before is answered")
        return await super().receive()


class Fails(Begins):
    """Can begin nothing."""

    async def __call__(self, due: Sequence[DueFlow], epochs: Epochs, *, wait: bool = False) -> BegunDue:
        raise ConnectionError("the store is away")


async def test_flows_that_cannot_begin_are_logged_once() -> None:
    flow = DueFlow("f", 1_000, 1_000, 1, "t")
    by_event = replace(flow, event=DueEvent("e1", "tick"))
    stream, begins, background = PatientStream([flow], [flow], [by_event]), Fails(), Background()
    anything = cast(Any, SimpleNamespace(due=lambda: stream)), cast(Any, begins), cast(Any, None), cast(Any, Owner())
    with capture_logs() as logged:
        running = asyncio.ensure_future(due_loop(*anything, background, lambda: None, lambda: None).run())
        await until(lambda: len(stream.answers) == 3, "each is answered")
        running.cancel()
        await asyncio.wait([running])
        await background.stop()
    assert [(each["event"], each["what"]) for each in logged] == [("due_flows_not_begun", "ConnectionError")]
    # An event comes again after delays that grow. The stream delivers the last list first.
    assert [answer.retry_ms for answer in stream.answers] == [-1, 1_000, 1_000]


class Refused(Begins):
    """Is refused whatever it begins."""

    async def __call__(self, due: Sequence[DueFlow], epochs: Epochs, *, wait: bool = False) -> BegunDue:
        return BegunDue([], [], [], lost={0})


async def test_partition_is_given_up_when_the_store_knows_a_newer_owner() -> None:
    """The newer owner may not know that it is: the answer to its acquisition was lost, and others are its share now."""
    stream, owner, background = Stream([DueFlow("f", 1_000, 1_000, 1, "t")]), Owner(), Background()
    anything = cast(Any, SimpleNamespace(due=lambda: stream)), cast(Any, Refused()), cast(Any, None), cast(Any, owner)
    running = asyncio.ensure_future(due_loop(*anything, background, lambda: None, lambda: None).run())
    await until(lambda: owner.lost == {0}, "the partition is given up")
    running.cancel()
    await asyncio.wait([running])
    await background.stop()


async def test_early_flows_begin_together_when_due() -> None:
    flows = [DueFlow(f"f{at}", 1_000 + 40 * (at % 2), 960, 1, f"t{at}") for at in range(6)]
    flows.append(DueFlow("now", 960, 960, 1, "now"))
    stream, begins, background = Stream(flows), Begins(), Background()

    async def hand_over(runs: object) -> None:
        raise AssertionError("nothing has begun")

    class Triggers:
        def due(self) -> Stream:
            return stream

    anything = cast(Any, Triggers()), cast(Any, begins), cast(Any, hand_over), cast(Any, Owner())
    began_s = asyncio.get_running_loop().time()
    running = asyncio.ensure_future(due_loop(*anything, background, lambda: None, lambda: None).run())
    try:
        await until(lambda: len(stream.answers) == len(flows), "everything is answered")
        assert asyncio.get_running_loop().time() - began_s >= 0.079
    finally:
        running.cancel()
        await asyncio.wait([running])
        await background.stop()

    assert [[flow.flow_id for flow in asked] for asked in begins.asked[1:]] == [["f0", "f2", "f4"], ["f1", "f3", "f5"]]
    assert all(flow.now_ms == flow.planned_ms for asked in begins.asked[1:] for flow in asked)
    assert [answer.token for answer in stream.answers] == ["now", "t0", "t2", "t4", "t1", "t3", "t5"]


class BeginsLate(Begins):
    """Begins the flow `large` only if it may take long."""

    async def __call__(self, due: Sequence[DueFlow], epochs: Epochs, *, wait: bool = False) -> BegunDue:
        self.asked.append(list(due))
        late = [flow for flow in due if flow.flow_id == "large" and not wait]
        return BegunDue([DueAnswer(flow.token) for flow in due if flow not in late], [], [], late)


async def test_flow_that_takes_long_to_begin_begins_by_itself_after_the_others() -> None:
    flows = [DueFlow(name, 1_000, 1_000, 1, name) for name in ("a", "large", "b")]
    stream, begins, background = Stream(flows), BeginsLate(), Background()
    anything = cast(Any, SimpleNamespace(due=lambda: stream)), cast(Any, begins), cast(Any, None), cast(Any, Owner())
    running = asyncio.ensure_future(due_loop(*anything, background, lambda: None, lambda: None).run())
    try:
        await until(lambda: len(stream.answers) == len(flows), "everything is answered")
    finally:
        running.cancel()
        await asyncio.wait([running])
        await background.stop()
    assert [[flow.flow_id for flow in asked] for asked in begins.asked] == [["a", "large", "b"], ["large"]]
    assert [answer.token for answer in stream.answers] == ["a", "b", "large"]


async def test_each_trigger_is_answered_by_what_has_become_of_its_cycle() -> None:
    outcomes = {
        BeginOutcome.SETTLED: DueAnswer("settled", 7),
        BeginOutcome.OVERTAKEN: None,
        BeginOutcome.EARLY: None,
        BeginOutcome.STALE_EPOCH: DueAnswer("stale_epoch"),
        BeginOutcome.DELETING: DueAnswer("deleting"),
        BeginOutcome.OVERLAP: DueAnswer("overlap", retry_ms=1_000, error="a cycle of the flow is still running"),
        BeginOutcome.REVISION_CHANGED: DueAnswer("revision_changed", retry_ms=100, error="the flow kept changing"),
    }
    asked: list[CycleRequest] = []

    async def begin(requests: Sequence[CycleRequest], epochs: Epochs, *, wait: bool) -> list[BeginResult]:
        asked.extend(requests)
        return [BeginResult(BeginAnswer(outcome, next_ms=7)) for outcome in outcomes]

    event = DueEvent("e1", "tick")
    due = [
        DueFlow("f", 1_000, 960, 1, outcome.value, "trace", event if at else None)
        for at, outcome in enumerate(outcomes)
    ]
    begun = await BeginDue(cast(Any, begin))(due, {0: 1}, wait=True)
    assert begun.answers == [answer for answer in outcomes.values() if answer is not None]
    assert [flow.token for flow in begun.early] == ["early"]
    assert begun.lost == {partition_of("f")}
    times = [(request.due_ms, request.now_ms, request.ahead, request.traceparent) for request in asked]
    assert times == [(1_000, 1_000, True, "trace"), *[(1_000, 1_000, False, "trace")] * 6], "only a time lies ahead"


async def test_time_that_lies_ahead_begins_a_cycle_at_that_time_unless_one_is_running() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register(overlap="skip")
    first_ms = scheduler.clock.now_ms() + 5
    running = StatusChange("f", FlowStatus.RUNNING, (FlowStatus.REGISTERED,), first_ms)
    await scheduler.stores.flows.change_status(running)
    (flow,) = await scheduler.stores.flows.find(["f"])
    assert flow is not None
    begin_due = BeginDue(scheduler.begin)
    begun = await begin_due([DueFlow("f", first_ms, first_ms - 5, flow.schedule_epoch, "t0")], {})
    assert [(run.state.facts.planned_ms, run.state.facts.start_ms) for run in begun.runs] == [(first_ms, first_ms)]
    assert begun.answers == [DueAnswer("t0", first_ms + 60_000)]

    # The running cycle may have ended by then.
    scheduler.clock.advance(60_000)
    second = DueFlow("f", first_ms + 60_000, first_ms + 59_995, flow.schedule_epoch, "t1")
    begun = await begin_due([second], {})
    assert (begun.answers, begun.runs, begun.early) == ([], [], [second])


async def test_event_that_comes_too_late_or_no_longer_counts_begins_nothing() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register(schedule={"event": {"name": "price"}, "catch_up_window": 60})
    await scheduler.stores.flows.change_status(StatusChange("f", FlowStatus.RUNNING, (FlowStatus.REGISTERED,), -1))
    (flow,) = await scheduler.stores.flows.find(["f"])
    assert flow is not None
    now_ms = scheduler.clock.now_ms()
    due = [
        DueFlow("f", now_ms - late_ms, now_ms, flow.schedule_epoch, name, event=DueEvent(f"e{late_ms}", name))
        for late_ms, name in ((60_001, "price"), (60_000, "price"), (0, "order"))
    ]
    begun = await BeginDue(scheduler.begin)(due, {})
    assert [answer.token for answer in begun.answers] == ["price", "price", "order"]
    firings = await scheduler.stores.firings.newest("f", 0, 10)
    assert [(line.event_id, line.outcome, line.reason) for line in firings] == [
        ("e0", FiringOutcome.SKIPPED, "the flow now begins on something else"),
        ("e60000", FiringOutcome.FIRED, ""),
        ("e60001", FiringOutcome.MISSED, "found due too late"),
    ]


class ParsesSlowly(Begins):
    """Begins flows whose definitions are at hand; parses those of others, one after another, when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[str] = []
        self.at_hand: set[str] = set()
        self.parsed = {"a": asyncio.Event(), "b": asyncio.Event()}

    async def __call__(self, due: Sequence[DueFlow], epochs: Epochs, *, wait: bool = False) -> BegunDue:
        self.asked.append(list(due))
        for flow_id in sorted({flow.flow_id for flow in due}) if wait else ():
            await self.parsed[flow_id].wait()
            self.at_hand.add(flow_id)
        late = [flow for flow in due if flow.flow_id not in self.at_hand]
        answers = [DueAnswer(flow.token) for flow in due if flow not in late]
        self.begun += [answer.token for answer in answers]
        return BegunDue(answers, [], [], late)


class FedStream(Stream):
    """Delivers what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.given: asyncio.Queue[list[DueFlow]] = asyncio.Queue()

    async def receive(self) -> tuple[list[DueFlow], list[int], bool]:
        return await self.given.get(), [], False


async def test_events_of_a_flow_that_takes_long_to_begin_begin_in_order() -> None:
    stream, begins, background = FedStream(), ParsesSlowly(), Background()
    anything = cast(Any, SimpleNamespace(due=lambda: stream)), cast(Any, begins), cast(Any, None), cast(Any, Owner())
    running = asyncio.ensure_future(due_loop(*anything, background, lambda: None, lambda: None).run())
    try:
        stream.given.put_nowait([DueFlow(name, 1, 1, 1, f"{name}1") for name in "ab"])
        await until(lambda: len(begins.asked) >= 2, "it takes long")
        begins.at_hand.add("a")  # Somebody else has parsed it.
        stream.given.put_nowait([DueFlow("a", 2, 2, 1, "a2"), DueFlow("a", 3, 3, 1, "a3")])
        stream.given.put_nowait([DueFlow("c", 1, 1, 1, "c1")])
        begins.at_hand.add("c")
        await until(lambda: "c1" in begins.begun, "another flow begins meanwhile")
        assert begins.begun == ["c1"]
        begins.parsed["a"].set()
        await until(lambda: len(begins.begun) == 4, "what has come for the flow begins when it is parsed")
        assert begins.begun == ["c1", "a1", "a2", "a3"]
        begins.parsed["b"].set()
        await until(lambda: len(stream.answers) == 5, "everything is answered")
        stream.given.put_nowait([DueFlow("a", 4, 4, 1, "a4")])
        await until(lambda: len(stream.answers) == 6, "later events begin at once")
    finally:
        running.cancel()
        await asyncio.wait([running])
        await background.stop()
    assert [answer.token for answer in stream.answers] == ["c1", "a1", "a2", "a3", "b1", "a4"]
