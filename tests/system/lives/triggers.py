"""What users do in a life with triggers of their own, at random."""

import asyncio
import itertools
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.system.lives.flows import EVENT
from tests.system.lives.receivers import ALL_ENDS, ALL_EVENTS, QUEUE
from tradewind.client import Client, TriggerRecord


class TriggerUsers:
    """All users of the queue; each method does one thing."""

    def __init__(self, draw: random.Random, client: Client, now_ms: Callable[[], int], *, loses_writes: bool) -> None:
        self._draw = draw
        self._client = client
        self._now_ms = now_ms
        self._loses_writes = loses_writes
        self._numbers = itertools.count()
        self._saving: set[str] = set()
        """Triggers that may be saved again, because an answer was lost: once removed, that would be another one."""

    async def listen_to_all(self) -> None:
        """Listen to all events and, in every second life, to all ends of cycles."""
        await self._client.save_trigger(ALL_EVENTS, queue=QUEUE, event=EVENT)
        if self._draw.random() < 0.5:
            await self._client.save_trigger(ALL_ENDS, queue=QUEUE, on_finished=[])

    async def save_trigger(self, _: str) -> None:
        """Save a trigger that fires a few times; once or, which makes no difference, twice."""
        trigger_id, payload = f"t{next(self._numbers)}", self._draw.choice((None, None, None, "bad"))
        schedule = self._schedule()
        calls = [
            self._client.save_trigger(trigger_id, queue=QUEUE, payload=payload, **schedule)
            for _ in range(self._draw.choice((1, 2)))
        ]
        self._saving.add(trigger_id)
        try:
            await asyncio.gather(*calls)
        finally:
            self._saving.discard(trigger_id)

    def _schedule(self) -> dict[str, Any]:
        choice = self._draw.choice
        now = datetime.fromtimestamp(self._now_ms() / 1000, UTC)
        schedules: tuple[dict[str, Any], ...] = (
            {"at": now + timedelta(seconds=choice((-5, 1, 30)))},
            {"after": choice((0.5, 10))},
            {"times": [now + timedelta(seconds=seconds) for seconds in (-1, 2, 3, 40)]},
            {"every": choice((0.5, 5)), "anchor": now, "max_firings": 4},
            {"cron": "* * * * *", "max_firings": 2, "jitter": choice((0, 3))},
            {"event": EVENT, "max_firings": choice((0, 3))},
        )
        return choice(schedules)

    async def fire_trigger(self, _: str) -> None:
        """Ask twice for the same firing."""
        if trigger := await self._any_trigger():
            request_id = f"fire-{next(self._numbers)}"
            calls = [self._client.fire_trigger(QUEUE, trigger.trigger_id, request_id=request_id) for _ in range(2)]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            assert answers.count(True) < 2 or self._loses_writes, f"{request_id} fired twice"

    async def pause_trigger(self, _: str) -> None:
        if trigger := await self._any_trigger():
            await self._client.pause_trigger(QUEUE, trigger.trigger_id)

    async def remove_trigger(self, _: str) -> None:
        if trigger := await self._any_trigger():
            await self._client.remove_trigger(QUEUE, trigger.trigger_id)

    async def resume_triggers(self, _: str = "") -> None:
        async for trigger in self._client.list_triggers(QUEUE):
            if trigger.paused:
                await self._client.resume_trigger(QUEUE, trigger.trigger_id)

    async def redrive_trigger(self, _: str) -> None:
        async for dead in self._client.list_dead_triggers(QUEUE):
            await self._client.redrive_trigger(QUEUE, dead.trigger_id, dead.firing_id)
            return

    async def _any_trigger(self) -> TriggerRecord | None:
        """Return some trigger, but none of those that listen to all."""
        triggers = [trigger async for trigger in self._client.list_triggers(QUEUE)]
        fixed = {ALL_EVENTS, ALL_ENDS, *self._saving}
        changing = [trigger for trigger in triggers if trigger.trigger_id not in fixed]
        return self._draw.choice(changing) if changing else None


WEIGHTS = {
    "save_trigger": 7,
    "fire_trigger": 2,
    "pause_trigger": 2,
    "remove_trigger": 1,
    "resume_triggers": 1,
    "redrive_trigger": 1,
}
"""How often each operation is chosen."""
