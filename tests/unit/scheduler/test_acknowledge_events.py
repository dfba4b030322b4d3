"""Events are acknowledged in the order of their batches, however late a part of one is handled."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.waiting import until
from tradewind.scheduler.domain.chain_state import ComponentEnd
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.sub_flow import Event, SubFlowEvent
from tradewind.scheduler.domain.submission import ComponentEvent, OpenComponentEvent
from tradewind.scheduler.loops import acknowledging, event_queue, events
from tradewind.scheduler.loops.acknowledging import Acks
from tradewind.scheduler.loops.event_queue import EventQueue
from tradewind.scheduler.loops.events import event_loop
from tradewind.scheduler.ports.peers import PeerUnavailable
from tradewind.scheduler.use_cases.background import Background
from tradewind.server.partitions import PARTITIONS


class RecordingStream:
    """A stream that records what is acknowledged on it."""

    def __init__(self) -> None:
        self.acknowledged: list[list[str]] = []

    async def acknowledge(self, events: Iterable[Event]) -> None:
        self.acknowledged.append(sorted(event.event_id for event in events))

    async def subscribe(self, epochs: Mapping[int, int]) -> None: ...

    async def unsubscribe(self, partitions: Collection[int]) -> None: ...

    async def receive(self) -> tuple[list[Event], list[int]]:
        return [], []

    async def close(self) -> None: ...


class BrokenStream(RecordingStream):
    """A stream that has been lost."""

    sub_flow_events = False

    async def acknowledge(self, events: Iterable[Event]) -> None:
        self.sub_flow_events = True
        raise PeerUnavailable("the node task manager", "it stops")


@pytest.fixture
async def background() -> AsyncIterator[Background]:
    background = Background()
    yield background
    await background.stop()


@pytest.fixture
def acks(background: Background, monkeypatch: pytest.MonkeyPatch) -> Acks:
    monkeypatch.setattr(acknowledging, "_ACK_S", 0.001)
    return Acks(background)


def event(event_id: str, partition: int = 0) -> SubFlowEvent:
    return SubFlowEvent(RunName("f", 0, 0), "r0", "ann", "n", None, partition, 0, event_id)


async def test_batches_are_acknowledged_in_order(acks: Acks) -> None:
    stream = RecordingStream()
    slow = acks.batch(stream, [event("1"), event("2")], parts=2)
    quick = acks.batch(stream, [event("3")], parts=1)
    slow.part_done()
    quick.part_done()
    later = acks.batch(stream, [event("4", partition=1)], parts=1)
    later.part_done()
    await asyncio.sleep(0.01)
    assert stream.acknowledged == [], "the batch before is not done"
    slow.part_done()
    await until(lambda: stream.acknowledged, "all are acknowledged")
    assert stream.acknowledged == [["3", "4"]], "only the last event of each partition is acknowledged"


async def test_events_of_lost_partitions_are_not_acknowledged(acks: Acks) -> None:
    stream = RecordingStream()
    batch = acks.batch(stream, [event("1"), event("2", partition=1), event("3")], parts=2)
    batch.part_done(lost={0})
    batch.part_done()
    await until(lambda: stream.acknowledged, "the rest is acknowledged")
    assert stream.acknowledged == [["2"]]


async def test_open_batches_of_a_broken_stream_are_dropped(acks: Acks) -> None:
    broken, stream = RecordingStream(), RecordingStream()
    left = acks.batch(broken, [event("1")], parts=1)
    acks.batch(stream, [event("1")], parts=1).part_done()
    await until(lambda: stream.acknowledged, "it is acknowledged")
    left.part_done()
    await asyncio.sleep(0.01)
    assert (broken.acknowledged, stream.acknowledged) == ([], [["1"]])


async def test_failed_acknowledgement_is_not_logged(acks: Acks) -> None:
    """The stream's reader reports that it is lost, and the events come again."""
    stream = BrokenStream()
    with capture_logs() as logged:
        acks.batch(stream, [event("1")], parts=1).part_done()
        await until(lambda: stream.sub_flow_events, "it is acknowledged")
        await asyncio.sleep(0)
    assert logged == []


class SlowSubFlows:
    """Handles nothing until the test lets it."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.handled: list[str] = []

    async def handle(self, events: Sequence[Event]) -> None:
        await self.released.wait()
        self.handled += [each.event_id for each in events]


async def test_sub_flow_events_are_handled_in_order_without_blocking_the_reader(
    acks: Acks, background: Background
) -> None:
    stream, sub_flows = RecordingStream(), SlowSubFlows()
    queue = EventQueue(sub_flows.handle, background, "nodes that run flows")
    for number in range(1, 4):
        batch = acks.batch(stream, [event(str(number))], parts=2)
        await queue.put([event(str(number))], batch)
        batch.part_done()
    assert sub_flows.handled == [], "nothing is handled, although all three were accepted"
    sub_flows.released.set()
    await until(lambda: stream.acknowledged[-1:] == [["3"]], "the last is acknowledged")
    assert sub_flows.handled == ["1", "2", "3"]


class OneBatchStream(RecordingStream):
    """A stream on which some events come together, and nothing after them."""

    def __init__(self, events: list[Event]) -> None:
        super().__init__()
        self._events = events

    async def receive(self) -> tuple[list[Event], list[int]]:
        if not self._events:
            await asyncio.get_running_loop().create_future()
        events, self._events = self._events, []
        return events, []


class OwnerOfAll:
    """Owns every partition."""

    owned: Collection[int] = range(PARTITIONS)

    @property
    def epochs(self) -> Mapping[int, int]:
        return dict.fromkeys(self.owned, 1)

    def owns(self, partition: int) -> bool:
        return partition in self.owned

    def on_change(self, changed: Callable[[], None]) -> None: ...

    def lose(self, partitions: Collection[int], reason: str) -> None:
        assert not partitions


class Owner(OwnerOfAll):
    """Owns some partitions, until it loses them."""

    def __init__(self, partitions: Collection[int]) -> None:
        self.owned: set[int] = set(partitions)

    def lose(self, partitions: Collection[int], reason: str) -> None:
        self.owned.difference_update(partitions)


async def test_last_event_is_acknowledged_when_earlier_ones_are_handled_after_it(
    acks: Acks, background: Background
) -> None:
    asked = OpenComponentEvent(RunName("f", 0, 0), "r0", "0", "ann", 0, 0, 0, "2")
    end = ComponentEvent(RunName("f", 0, 0), "r0", "0", ComponentEnd(), 0, 0, "3")
    stream, sub_flows, open_components = OneBatchStream([event("1"), asked, end]), SlowSubFlows(), SlowSubFlows()
    stop_ended_runs: Any = open_components.handle

    async def fold(events: Sequence[ComponentEvent], epochs: Mapping[int, int]) -> set[int]:
        asyncio.get_running_loop().call_later(0.001, sub_flows.released.set)
        return set()

    peers: Any = SimpleNamespace(events=lambda: stream, collect=lambda event: None)
    owner: Any = OwnerOfAll()
    loop = event_loop(peers, fold, peers, owner, background, sub_flows, stop_ended_runs)  # type: ignore[arg-type]
    background.begin(loop.run(), "events")
    await until(lambda: sub_flows.handled, "the first is handled")
    await asyncio.sleep(0.01)
    assert stream.acknowledged == [], "the second is not handled"
    open_components.released.set()
    await until(lambda: stream.acknowledged, "all are handled")
    assert stream.acknowledged == [["3"]]


async def test_ends_that_cannot_be_put_on_record_are_logged_once(
    acks: Acks, background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_BACKOFF_S", (0.001, 0.001))
    stream = OneBatchStream([ComponentEvent(RunName("f", 0, 0), "r0", "0", ComponentEnd(), 0, 0, "1")])
    tries = 0

    async def fold(events: Sequence[ComponentEvent], epochs: Mapping[int, int]) -> set[int]:
        nonlocal tries
        tries += 1
        if tries <= 3:
            raise ConnectionError("the store is away")
        return set()

    peers: Any = SimpleNamespace(events=lambda: stream, collect=lambda event: None)
    owner: Any = OwnerOfAll()
    with capture_logs() as logged:
        loop = event_loop(peers, fold, peers, owner, background, SlowSubFlows(), peers)  # type: ignore[arg-type]
        background.begin(loop.run(), "events")
        await until(lambda: stream.acknowledged, "it is on record")
    assert [(each["event"], each["what"]) for each in logged] == [("events_not_applied", "ConnectionError")]


async def test_only_events_of_partitions_owned_throughout_are_acknowledged(
    acks: Acks, background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other events come again: to whoever owns their partitions."""
    monkeypatch.setattr(events, "_BACKOFF_S", (0.001, 0.001))
    ends = [ComponentEvent(RunName("f", 0, 0), "r0", "0", ComponentEnd(), at, 0, str(at)) for at in range(4)]
    stream, owner, folded = OneBatchStream([event("a", 3), *ends]), Owner(range(3)), list[list[str]]()

    async def fold(events: Sequence[ComponentEvent], epochs: Mapping[int, int]) -> set[int]:
        folded.append([event.event_id for event in events])
        if len(folded) == 1:
            owner.owned.discard(1)
            raise ConnectionError("the store is away")
        # The store knows a newer owner of this one.
        return {2}

    peers: Any = SimpleNamespace(events=lambda: stream, collect=lambda event: None)
    owning: Any = owner
    loop = event_loop(peers, fold, peers, owning, background, SlowSubFlows(), peers)  # type: ignore[arg-type]
    background.begin(loop.run(), "events")
    await until(lambda: stream.acknowledged, "what was folded is acknowledged")
    assert folded == [["0", "1", "2"], ["0", "2"]]
    assert (stream.acknowledged, owner.owned) == ([["0"]], {0})


async def test_reader_blocks_while_too_many_batches_wait(
    acks: Acks, background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_queue, "_MAX_WAITING", 2)
    sub_flows = SlowSubFlows()
    queue = EventQueue(sub_flows.handle, background, "nodes that run flows")
    accepted = 0

    async def accept() -> None:
        nonlocal accepted
        for number in range(10):
            await queue.put([event(str(number))], acks.batch(RecordingStream(), [], parts=2))
            accepted += 1

    accepting = asyncio.create_task(accept())
    await until(lambda: accepted >= 2, "some are accepted")
    await asyncio.sleep(0.01)
    assert accepted < 10
    sub_flows.released.set()
    await asyncio.wait_for(accepting, 30)
    await until(lambda: len(sub_flows.handled) == 10, "all are handled")
