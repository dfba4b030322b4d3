"""Work in the partitions that a replica owns, while the store or a peer is away."""

import asyncio
from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from tradewind.scheduler.loops.owned_work import OwnedWork
from tradewind.scheduler.ports.owning import Epochs
from tradewind.scheduler.ports.peers import PeerUnavailable
from tradewind.scheduler.ports.waking import Work
from tradewind.scheduler.stores.memory import MemoryStores
from tradewind.scheduler.use_cases.background import Background
from tradewind.scheduler.use_cases.own_partitions import OwnPartitions
from tradewind.scheduler.use_cases.wake_owners import WakeOwners
from tradewind.server.clock import ManualClock
from tradewind.testing.virtual.loop import VirtualLoop


@pytest.mark.parametrize("error", [ConnectionError("the store is away"), PeerUnavailable("registry", "it is away")])
def test_failing_work_is_logged_once_until_it_succeeds_again(error: Exception) -> None:
    times = 0

    async def work(_epochs: Epochs) -> float:
        nonlocal times
        times += 1
        if times <= 30:
            raise error
        return 60.0

    async def two_minutes() -> None:
        stores = MemoryStores(ManualClock())
        ownership = OwnPartitions(stores.partitions, stores.wakes)
        wake = WakeOwners(stores.wakes, ownership, Background(), 60.0)
        with suppress(TimeoutError):
            async with asyncio.timeout(120):
                await OwnedWork("jobs_not_read", work, wake, Work.JOBS, 60.0).run()

    with capture_logs() as logs, asyncio.Runner(loop_factory=lambda: VirtualLoop(0)) as runner:
        runner.run(two_minutes())

    assert [(log["event"], log["what"], log.get("times")) for log in logs] == [
        ("jobs_not_read", "jobs", None),
        ("work_recovered", "jobs", 30),
    ]
