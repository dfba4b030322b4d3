"""How often a replica reports that it is alive."""

import asyncio
from contextlib import suppress

from tradewind.scheduler.loops.ownership import OwnershipLoop
from tradewind.scheduler.stores.memory import MemoryStores
from tradewind.scheduler.use_cases.alarm import Alarm
from tradewind.scheduler.use_cases.own_partitions import OwnPartitions
from tradewind.server.clock import ManualClock
from tradewind.testing.virtual.loop import VirtualLoop

LEASE_S, LEASES = 86_400.0, 200


class Counted(OwnPartitions):
    """Counts, and tolerates only so many turns of the loop."""

    shared = turns = 0

    async def rebalance(self, *, alone: bool = False) -> None:
        self.shared += 1
        await super().rebalance(alone=alone)

    @property
    def complete(self) -> bool:
        self.turns += 1
        if self.turns > 100 * LEASES:
            raise RecursionError("the loop goes on without waiting")
        return super().complete


def test_replica_renews_three_times_per_lease() -> None:
    """Sums and differences of times are rounded, and while a clock stands still nothing else gets a turn."""
    stores = MemoryStores(ManualClock(), replica="only")
    ownership = Counted(stores.partitions, stores.wakes)

    async def some_months() -> None:
        await asyncio.sleep(0.123)
        with suppress(TimeoutError):
            async with asyncio.timeout(LEASES * LEASE_S - 1):
                await OwnershipLoop(ownership, Alarm(), LEASE_S, single_replica=True).run()

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(0)) as runner:
        runner.run(some_months())

    assert ownership.shared == 3 * LEASES
