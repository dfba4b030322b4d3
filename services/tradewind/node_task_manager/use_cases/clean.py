"""Cleaning up after what has ended: one replica per shard, in small steps with rests between them."""

import asyncio
import time

from tradewind.node_task_manager.ports import NodeTaskStore

_SWEEP_S = 3600.0
"""So often the list of all node tasks is looked through for those whose records are gone."""
_REST = 4
"""After each step the store is left alone for so many times as long as the step took, or longer."""


class Cleaner:
    """Cleans a shard when it leads: whoever was first does, until it leaves or dies."""

    def __init__(self, tasks: NodeTaskStore, name: str, keys_per_second: int) -> None:
        self._tasks = tasks
        self._name = name
        self._keys_per_second = keys_per_second
        self._swept = -_SWEEP_S

    async def __call__(self) -> None:
        """Take steps until there is nothing left to do, or somebody else leads."""
        sweeping = time.monotonic() >= self._swept + _SWEEP_S
        place = 0 if sweeping else None
        while True:
            began = time.monotonic()
            step = await self._tasks.clean(self._name, place)
            if not step.more:
                break
            place = step.place
            took = time.monotonic() - began
            await asyncio.sleep(max(step.keys / self._keys_per_second, took * _REST))
        if sweeping and step.leads and not step.waits:
            self._swept = time.monotonic()

    async def leave(self) -> None:
        """Let another replica lead at once."""
        await self._tasks.leave_cleaning(self._name)
