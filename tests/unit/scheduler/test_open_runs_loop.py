"""How many open runs the loop reads and looks after at a time."""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

import pytest

from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.loops.open_runs import open_runs_loop
from tradewind.scheduler.ports.due_sets import DueCheck
from tradewind.scheduler.ports.owning import Epochs
from tradewind.scheduler.stores.memory import MemoryStores
from tradewind.scheduler.use_cases.background import Background
from tradewind.scheduler.use_cases.own_partitions import OwnPartitions
from tradewind.scheduler.use_cases.wake_owners import WakeOwners
from tradewind.server.clock import ManualClock
from tradewind.server.partitions import PARTITIONS, partition_of
from tradewind.testing.virtual.loop import VirtualLoop


class DueRuns:
    """Open runs of which all are due, until they are looked after."""

    def __init__(self, partitions: int) -> None:
        names = [RunName(f"f{at}", 0) for at in range(50_000)]
        self.left = [name for name in names if partition_of(name.flow_id) < partitions][:2000]
        self.most = 0

    async def check(self, partitions: Collection[int], limit: int) -> dict[int, DueCheck[RunName]]:
        found = {}
        for partition in partitions:
            due = [name for name in self.left if partition_of(name.flow_id) == partition]
            found[partition] = DueCheck(tuple(due[:limit]), 0 if due[limit:] else None)
        return found

    async def look_after(self, runs: Sequence[RunName], _epochs: Epochs) -> None:
        self.most = max(self.most, len(runs))
        self.left = [name for name in self.left if name not in runs]


@pytest.mark.parametrize("partitions", [1, PARTITIONS])
def test_runs_that_are_due_are_looked_after_some_hundreds_at_a_time_without_a_pause(partitions: int) -> None:
    runs: Any = DueRuns(partitions)

    async def look_after_all() -> None:
        clock = ManualClock()
        stores = MemoryStores(clock)
        ownership = OwnPartitions(stores.partitions, stores.wakes)
        await ownership.acquire()
        wake = WakeOwners(stores.wakes, ownership, Background(), 60.0)
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await open_runs_loop(runs, runs.look_after, wake, clock, 60.0).run()

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(0)) as runner:
        runner.run(look_after_all())
    assert runs.left == []
    assert 16 <= runs.most <= 500
