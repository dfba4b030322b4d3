"""Whether anybody listens to ends of cycles, while that is asked and told at once."""

import asyncio
from typing import Any, cast

from tradewind.scheduler.use_cases.tell_ends import TellEnds


class Events:
    """Answers that nobody listens, once it may."""

    def __init__(self) -> None:
        self.answer = asyncio.Event()

    async def listened(self, name: str) -> bool:
        await self.answer.wait()
        return False

    async def publish(self, name: str, event_id: str, payload_json: str) -> None: ...


async def test_who_begins_to_listen_while_it_is_asked_is_not_forgotten() -> None:
    events = Events()
    tell = TellEnds(cast(Any, None), cast(Any, None), events)
    looking = asyncio.ensure_future(tell.look())
    await asyncio.sleep(0)
    tell.hear_of_listener()
    events.answer.set()
    await looking
    assert tell.listened
    await tell.look()
    assert not tell.listened
