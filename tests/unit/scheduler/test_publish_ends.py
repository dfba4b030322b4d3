"""Publishing ends of cycles: whether anybody listens, while it is asked and while listeners come, and what is said."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, cast

from tests.waiting import until
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.ended_run import EndedRun
from tradewind.scheduler.domain.event_schedule import EventSchedule
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.loops.publishing import PublishEndsLoop
from tradewind.scheduler.ports.peers import PeerUnavailable
from tradewind.scheduler.use_cases.alarm import Alarm
from tradewind.scheduler.use_cases.publish_ends import PublishEnds
from tradewind.server.schedules.event_filter import EventFilter


class Events:
    """Answers that nobody listens, once the test lets it."""

    def __init__(self) -> None:
        self.answer = asyncio.Event()

    async def has_listeners(self, name: str) -> bool:
        await self.answer.wait()
        return False

    async def publish(self, name: str, event_id: str, payload_json: str) -> None: ...


async def test_listener_added_during_a_check_is_not_lost() -> None:
    events = Events()
    publish = PublishEnds(cast(Any, None), cast(Any, None), cast(Any, None), events)
    looking = asyncio.ensure_future(publish.poll_listeners())
    await asyncio.sleep(0)
    publish.on_listener()
    events.answer.set()
    await looking
    assert publish.has_listeners
    await publish.poll_listeners()
    assert not publish.has_listeners


class OneEnd:
    """One end that waits, of a run whose record is gone."""

    def __init__(self) -> None:
        self.left = [EndedRun(RunName("f", 7), "r0", CycleStatus.COMPLETED, 5)]
        self.published: list[dict[str, Any]] = []

    async def waiting(self, partitions: Sequence[int], limit: int) -> list[EndedRun]:
        return list(self.left)

    async def remove(self, ends: Sequence[EndedRun]) -> None:
        self.left = [each for each in self.left if each not in ends]

    async def load_many(self, runs: Sequence[RunName]) -> list[None]:
        return [None for _ in runs]

    async def owners(self, flow_ids: Sequence[str]) -> list[str]:
        return ["ann" for _ in flow_ids]

    async def publish(self, name: str, event_id: str, payload_json: str) -> None:
        self.published.append(json.loads(payload_json))


async def test_end_says_whose_it_is_when_its_record_is_gone() -> None:
    stage: Any = OneEnd()
    assert await PublishEnds(stage, stage, stage, stage)([0])
    assert [(each["flow_id"], each["user_id"]) for each in stage.published] == [("f", "ann")]
    assert EventFilter(EventSchedule(flow_ids=("f",)).event_filter("ann")).matches(stage.published[0])


class Ownership:
    """Owned partitions, and the listener for newly gained ones."""

    def __init__(self) -> None:
        self.epochs = {0: 1}

    def on_change(self, gained: Any) -> None:
        self.gained = gained


class Tell:
    """Gains another partition while the ends of the first are reported; nobody listens for ends."""

    has_listeners = False

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self.published: list[Sequence[int]] = []

    async def poll_listeners(self) -> None: ...

    async def __call__(self, partitions: Sequence[int]) -> bool:
        self.published.append(partitions)
        if partitions == [0] and not self.has_listeners:
            self._ownership.epochs[1] = 1
            self._ownership.gained()
        return True


class Stumble(Tell):
    """Fails to publish, once by an answer and once by an error."""

    async def __call__(self, partitions: Sequence[int]) -> bool:
        self.published.append(partitions)
        if len(self.published) == 2:
            raise ConnectionError("the store is away")
        return len(self.published) > 2


async def test_ends_that_were_not_published_are_published_later() -> None:
    """Not because somebody listens: a predecessor has left them."""
    ownership: Any = Ownership()
    publish: Any = Stumble(ownership)
    telling = asyncio.ensure_future(PublishEndsLoop(publish, ownership, Alarm(), 3600).run())
    await until(lambda: len(publish.published) == 3, "they are published", 5)
    telling.cancel()


class Away(Tell):
    """Ends are listened for, and the trigger service is away for the first two questions."""

    has_listeners = True
    asked = 0

    async def poll_listeners(self) -> None:
        self.asked += 1
        if self.asked <= 2:
            raise PeerUnavailable("trigger service", "away")


async def test_ends_are_published_soon_after_the_trigger_service_is_back() -> None:
    ownership: Any = Ownership()
    publish: Any = Away(ownership)
    loop = PublishEndsLoop(publish, ownership, Alarm(), 3600)
    loop._pending = False
    telling = asyncio.ensure_future(loop.run())
    await until(lambda: publish.published == [[0]], "they are published", 5)
    telling.cancel()


async def test_ends_in_a_partition_gained_meanwhile_are_published() -> None:
    ownership: Any = Ownership()
    publish: Any = Tell(ownership)
    telling = asyncio.ensure_future(PublishEndsLoop(publish, ownership, Alarm(), 0.01).run())
    await until(lambda: publish.published == [[0], [0, 1]], "both are published", 5)
    telling.cancel()
