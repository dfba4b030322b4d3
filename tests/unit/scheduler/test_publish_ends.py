"""Whether anybody listens for ends of cycles, while it is asked and while listeners come."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from tests.waiting import until
from tradewind.scheduler.loops.publishing import PublishEndsLoop
from tradewind.scheduler.use_cases.alarm import Alarm
from tradewind.scheduler.use_cases.publish_ends import PublishEnds


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
    publish = PublishEnds(cast(Any, None), cast(Any, None), events)
    looking = asyncio.ensure_future(publish.poll_listeners())
    await asyncio.sleep(0)
    publish.on_listener()
    events.answer.set()
    await looking
    assert publish.has_listeners
    await publish.poll_listeners()
    assert not publish.has_listeners


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
        if partitions == [0]:
            self._ownership.epochs[1] = 1
            self._ownership.gained()
        return True


async def test_ends_in_a_partition_gained_meanwhile_are_published() -> None:
    ownership: Any = Ownership()
    publish: Any = Tell(ownership)
    telling = asyncio.ensure_future(PublishEndsLoop(publish, ownership, Alarm(), 0.01).run())
    await until(lambda: publish.published == [[0], [0, 1]], "both are published", 5)
    telling.cancel()
