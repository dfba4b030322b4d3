"""Events are acknowledged in the order of their batches, however late a part of one is handled."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence

import pytest
from structlog.testing import capture_logs

from tests.waiting import until
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.sub_flow import Event, SubFlowEvent
from tradewind.scheduler.loops import acknowledging, ends
from tradewind.scheduler.loops.acknowledging import Acks
from tradewind.scheduler.ports.peers import PeerUnavailable
from tradewind.scheduler.use_cases.background import Background


class Told:
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


class Broken(Told):
    """A stream that has been lost."""

    asked = False

    async def acknowledge(self, events: Iterable[Event]) -> None:
        self.asked = True
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


async def test_a_batch_waits_for_those_before_it(acks: Acks) -> None:
    stream = Told()
    slow, quick = acks.batch(stream, parts=2), acks.batch(stream, parts=1)
    slow.seen_to([event("1")])
    quick.seen_to([event("3")])
    later = acks.batch(stream, parts=1)
    later.seen_to([event("4", partition=1)])
    await asyncio.sleep(0.01)
    assert stream.acknowledged == [], "what came before is not seen to"
    slow.seen_to([event("2")])
    await until(lambda: stream.acknowledged, "all are acknowledged")
    assert stream.acknowledged == [["3", "4"]], "the last of each partition stands for those before it"


async def test_what_belongs_to_a_lost_partition_is_left_to_its_new_owner(acks: Acks) -> None:
    stream = Told()
    batch = acks.batch(stream, parts=2)
    batch.seen_to([event("1", partition=0), event("2", partition=1)], lost={0})
    batch.seen_to([event("3", partition=0)])
    await until(lambda: stream.acknowledged, "the rest is acknowledged")
    assert stream.acknowledged == [["2"]]


async def test_what_a_broken_stream_left_holds_nothing_up(acks: Acks) -> None:
    broken, stream = Told(), Told()
    left = acks.batch(broken, parts=1)
    acks.batch(stream, parts=1).seen_to([event("1")])
    await until(lambda: stream.acknowledged, "it is acknowledged")
    left.seen_to([event("1")])
    await asyncio.sleep(0.01)
    assert (broken.acknowledged, stream.acknowledged) == ([], [["1"]])


async def test_a_stream_that_breaks_meanwhile_is_not_told_of_twice(acks: Acks) -> None:
    """The stream's reader reports that it is lost, and the events come again."""
    stream = Broken()
    with capture_logs() as logged:
        acks.batch(stream, parts=1).seen_to([event("1")])
        await until(lambda: stream.asked, "it is acknowledged")
        await asyncio.sleep(0)
    assert logged == []


class SlowSubFlows:
    """Hears of nothing until the test lets it."""

    def __init__(self) -> None:
        self.let = asyncio.Event()
        self.heard_of: list[str] = []

    async def heard(self, events: Sequence[SubFlowEvent]) -> None:
        await self.let.wait()
        self.heard_of += [each.event_id for each in events]


async def test_those_who_are_heard_keep_their_order_and_hold_up_nobody(acks: Acks, background: Background) -> None:
    stream, sub_flows = Told(), SlowSubFlows()
    ears = ends.Ears(sub_flows, background)  # type: ignore[arg-type]
    for number in range(1, 4):
        batch = acks.batch(stream, parts=2)
        await ears.take([event(str(number))], batch)
        batch.seen_to([])
    assert sub_flows.heard_of == [], "nothing is heard, and all three were taken"
    sub_flows.let.set()
    await until(lambda: stream.acknowledged[-1:] == [["3"]], "the last is acknowledged")
    assert sub_flows.heard_of == ["1", "2", "3"]


async def test_no_more_are_taken_than_may_wait(
    acks: Acks, background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ends, "_MOST_UNHEARD", 2)
    sub_flows = SlowSubFlows()
    ears = ends.Ears(sub_flows, background)  # type: ignore[arg-type]
    taken = 0

    async def take() -> None:
        nonlocal taken
        for number in range(10):
            await ears.take([event(str(number))], acks.batch(Told(), parts=2))
            taken += 1

    taking = asyncio.create_task(take())
    await until(lambda: taken >= 2, "some are taken")
    await asyncio.sleep(0.01)
    assert taken < 10
    sub_flows.let.set()
    await asyncio.wait_for(taking, 30)
    await until(lambda: len(sub_flows.heard_of) == 10, "all are heard")
