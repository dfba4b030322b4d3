"""Removing what has ended: one replica for each shard, in small steps with rests between them."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from tradewind.node_task_manager.ports.node_tasks import NodeTaskStore

Sleep = Callable[[float], Awaitable[Any]]

_SWEEP_S = 3600.0
"""How often the list of all node tasks is searched for entries whose records are gone."""
_REST = 4
"""After each step, the store is left alone for at least this many times as long as the step took."""


class Cleaner:
    """Cleans a shard while it leads: the first cleaner does, until it leaves or dies. To be called every `every_s`."""

    def __init__(
        self, tasks: NodeTaskStore, name: str, every_s: float, keys_per_second: int, sleep: Sleep = asyncio.sleep
    ) -> None:
        self.every_s = every_s
        self._tasks = tasks
        self._name = name
        self._keys_per_second = keys_per_second
        self._sleep = sleep
        self._swept = -_SWEEP_S

    async def __call__(self) -> None:
        """Take steps until nothing is left to do, or another cleaner leads."""
        sweeping = time.monotonic() >= self._swept + _SWEEP_S
        place = 0 if sweeping else None
        while True:
            began = time.monotonic()
            step = await self._tasks.clean(self._name, place)
            if not step.more:
                break
            place = step.place
            took = time.monotonic() - began
            rest = max(step.keys / self._keys_per_second, took * _REST)
            # The cleaner's lease must not lapse meanwhile.
            await self._sleep(min(rest, self.every_s))
        if sweeping and step.leads and not step.waits:
            self._swept = time.monotonic()

    async def leave(self) -> None:
        """Let another replica lead at once."""
        await self._tasks.leave_cleaning(self._name)
