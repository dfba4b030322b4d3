"""Who is woken for work in a partition: its owner, here or elsewhere."""

import asyncio
from collections.abc import Callable

from tests.waiting import until
from tradewind.scheduler.ports.waking import EVERY, WakeUp, Work
from tradewind.scheduler.stores.memory import MemoryStores
from tradewind.scheduler.use_cases.background import Background
from tradewind.scheduler.use_cases.own_partitions import OwnPartitions
from tradewind.scheduler.use_cases.wake_owners import WakeOwners
from tradewind.server.clock import ManualClock
from tradewind.server.partitions import partition_of

POLL_S = 5.0
HOUR_S = 3600.0


class Replica:
    """Owns what the test lets it own; keeps the messages that others receive."""

    def __init__(self, poll_s: float = POLL_S) -> None:
        stores = MemoryStores(ManualClock())
        self.sent: list[WakeUp] = []
        self.ownership = OwnPartitions(stores.partitions, stores.wakes)
        self.background = Background()
        self.wake = WakeOwners(stores.wakes, self.ownership, self.background, poll_s)
        self._listening = stores.wakes.listen(self.sent.append, lambda: None)

    async def __aenter__(self) -> "Replica":
        await self._listening
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.background.stop()


async def rings(rest: Callable[[], object], within_s: float = 1.0) -> bool:
    """Say whether an alarm rings soon."""
    begun = asyncio.get_running_loop().time()
    await asyncio.wait_for(rest(), HOUR_S)  # type: ignore[arg-type]
    return asyncio.get_running_loop().time() - begun < within_s


async def test_local_owner_is_woken_without_a_message() -> None:
    async with Replica() as replica:
        await replica.ownership.acquire()
        replica.wake(Work.RUNS, "f", 20)
        assert await rings(lambda: replica.wake.alarms[Work.RUNS].rest(HOUR_S))
        assert replica.sent == []


async def test_remote_owner_is_notified_unless_it_polls_earlier() -> None:
    async with Replica() as replica:
        replica.wake(Work.RUNS, "f", 5000)
        replica.wake(Work.JOBS, "f", 0)
        replica.wake(Work.RUNS, "g", 4999)
        f, g = partition_of("f"), partition_of("g")
        await until(lambda: replica.sent == [WakeUp(Work.JOBS, f, 0), WakeUp(Work.RUNS, g, 4999)], "both are notified")


async def test_only_earlier_wake_ups_are_sent_again() -> None:
    async with Replica() as replica:
        for in_ms in (2000, 2000, 3000, 500, 2000, 0, 0):
            replica.wake(Work.RUNS, "f", in_ms)
            await asyncio.sleep(0)
        sent = [2000, 500, 0, 0]
        await until(lambda: [each.in_ms for each in replica.sent] == sent, "earlier times are sent")


async def test_replica_wakes_for_partitions_it_owns_and_for_all_after_a_gap() -> None:
    async with Replica() as replica:
        alarms = replica.wake.alarms
        replica.wake.receive(WakeUp(Work.RUNS, 0, 0))
        assert not await rings(lambda: alarms[Work.RUNS].rest(HOUR_S, 0.05), 0.04)
        await replica.ownership.acquire()
        replica.wake.receive(WakeUp(Work.RUNS, 0, 0))
        assert await rings(lambda: alarms[Work.RUNS].rest(HOUR_S))
        replica.wake.receive(WakeUp(Work.SHARES, EVERY, 0))
        assert await rings(lambda: alarms[Work.SHARES].rest(HOUR_S))
        replica.wake.missed()
        for alarm in alarms.values():
            assert await rings(lambda alarm=alarm: alarm.rest(HOUR_S))  # type: ignore[misc]
