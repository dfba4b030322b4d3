"""Events are acknowledged in the order of their batches, however late a part of one is handled."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence

import pytest
from structlog.testing import capture_logs

from tests.waiting import until
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.sub_flow import Event, SubFlowEvent
from tradewind.scheduler.loops import acknowledging, sub_flow_queue
from tradewind.scheduler.loops.acknowledging import Acks
from tradewind.scheduler.loops.sub_flow_queue import SubFlowQueue
from tradewind.scheduler.ports.peers import PeerUnavailable
from tradewind.scheduler.use_cases.background import Background


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
    slow, quick = acks.batch(stream, parts=2), acks.batch(stream, parts=1)
    slow.part_done([event("1")])
    quick.part_done([event("3")])
    later = acks.batch(stream, parts=1)
    later.part_done([event("4", partition=1)])
    await asyncio.sleep(0.01)
    assert stream.acknowledged == [], "the batch before is not done"
    slow.part_done([event("2")])
    await until(lambda: stream.acknowledged, "all are acknowledged")
    assert stream.acknowledged == [["3", "4"]], "only the last event of each partition is acknowledged"


async def test_events_of_lost_partitions_are_not_acknowledged(acks: Acks) -> None:
    stream = RecordingStream()
    batch = acks.batch(stream, parts=2)
    batch.part_done([event("1", partition=0), event("2", partition=1)], lost={0})
    batch.part_done([event("3", partition=0)])
    await until(lambda: stream.acknowledged, "the rest is acknowledged")
    assert stream.acknowledged == [["2"]]


async def test_open_batches_of_a_broken_stream_are_dropped(acks: Acks) -> None:
    broken, stream = RecordingStream(), RecordingStream()
    left = acks.batch(broken, parts=1)
    acks.batch(stream, parts=1).part_done([event("1")])
    await until(lambda: stream.acknowledged, "it is acknowledged")
    left.part_done([event("1")])
    await asyncio.sleep(0.01)
    assert (broken.acknowledged, stream.acknowledged) == ([], [["1"]])


async def test_failed_acknowledgement_is_not_logged(acks: Acks) -> None:
    """The stream's reader reports that it is lost, and the events come again."""
    stream = BrokenStream()
    with capture_logs() as logged:
        acks.batch(stream, parts=1).part_done([event("1")])
        await until(lambda: stream.sub_flow_events, "it is acknowledged")
        await asyncio.sleep(0)
    assert logged == []


class SlowSubFlows:
    """Handles nothing until the test lets it."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.handled: list[str] = []

    async def handle(self, events: Sequence[SubFlowEvent]) -> None:
        await self.released.wait()
        self.handled += [each.event_id for each in events]


async def test_sub_flow_events_are_handled_in_order_without_blocking_the_reader(
    acks: Acks, background: Background
) -> None:
    stream, sub_flows = RecordingStream(), SlowSubFlows()
    queue = SubFlowQueue(sub_flows, background)  # type: ignore[arg-type]
    for number in range(1, 4):
        batch = acks.batch(stream, parts=2)
        await queue.put([event(str(number))], batch)
        batch.part_done([])
    assert sub_flows.handled == [], "nothing is handled, although all three were accepted"
    sub_flows.released.set()
    await until(lambda: stream.acknowledged[-1:] == [["3"]], "the last is acknowledged")
    assert sub_flows.handled == ["1", "2", "3"]


async def test_reader_blocks_while_too_many_batches_wait(
    acks: Acks, background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sub_flow_queue, "_MAX_WAITING", 2)
    sub_flows = SlowSubFlows()
    queue = SubFlowQueue(sub_flows, background)  # type: ignore[arg-type]
    accepted = 0

    async def accept() -> None:
        nonlocal accepted
        for number in range(10):
            await queue.put([event(str(number))], acks.batch(RecordingStream(), parts=2))
            accepted += 1

    accepting = asyncio.create_task(accept())
    await until(lambda: accepted >= 2, "some are accepted")
    await asyncio.sleep(0.01)
    assert accepted < 10
    sub_flows.released.set()
    await asyncio.wait_for(accepting, 30)
    await until(lambda: len(sub_flows.handled) == 10, "all are handled")
