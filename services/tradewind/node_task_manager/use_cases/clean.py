"""Removing what has ended: one replica for each shard, in small steps with rests between them."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tradewind.node_task_manager.ports.events import NewEvent
from tradewind.node_task_manager.ports.node_tasks import NodeTaskStore

Sleep = Callable[[float], Awaitable[Any]]

_SWEEP_S = 3600.0
"""How often the list of all node tasks is searched for entries whose records are gone."""
_REST = 4
"""After each step, the store is left alone for this many times as long as the step took, or less when it is behind."""
_BEHIND_MS = 60_000
"""A cleaner that is this far behind does not rest, or what has ended would pile up under a steady load."""
_AT_ONCE = 4
"""So many steps go to the store together then: when it is busy, each waits for its turn longer than it takes."""


class Cleaner:
    """Cleans a shard while it leads: the first cleaner does, until it leaves or dies. To be called every `every_s`."""

    def __init__(
        self,
        tasks: NodeTaskStore,
        name: str,
        every_s: float,
        keys_per_second: int,
        publish_events: Callable[[Sequence[NewEvent]], None],
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.every_s = every_s
        self._tasks = tasks
        self._name = name
        self._keys_per_second = keys_per_second
        self._publish_events = publish_events
        self._sleep = sleep
        self._swept = -_SWEEP_S
        self._outages, self._outages_answered = 1, 0

    def store_was_away(self) -> None:
        """Ask the scheduler about all open runs: the store may have lost what it did with them.

        Nobody knows what happened before this process began, so it begins by asking.
        """
        self._outages += 1

    async def __call__(self) -> None:
        """Take steps until nothing is left to do, or another cleaner leads."""
        sweeping = time.monotonic() >= self._swept + _SWEEP_S
        place = 0 if sweeping else None
        outages = self._outages
        recall = 0 if outages > self._outages_answered else None
        at_once = 1
        while True:
            began = time.monotonic()
            steps = await asyncio.gather(*(self._tasks.clean(self._name, place, recall) for _ in range(at_once)))
            for step in steps:
                self._publish_events(step.events)
            if not step.more:
                break
            place, recall = step.place, step.recall
            at_once = _AT_ONCE if step.behind > _BEHIND_MS and place is None and recall is None else 1
            took = time.monotonic() - began
            share = max(0.0, 1 - step.behind / _BEHIND_MS)
            rest = max(sum(each.keys for each in steps) / self._keys_per_second, took * _REST * share)
            # The cleaner's lease must not lapse meanwhile.
            await self._sleep(min(rest, self.every_s))
        if not step.leads or step.waits:
            return
        self._outages_answered = outages
        if sweeping:
            self._swept = time.monotonic()

    async def leave(self) -> None:
        """Let another replica lead at once."""
        await self._tasks.leave_cleaning(self._name)
