"""Takes and gives up partitions for this replica, and knows under which epochs it owns them."""

from collections.abc import Callable, Collection, Iterable, Mapping

import structlog

from tradewind.scheduler.domain.sharing import shares_of
from tradewind.scheduler.metrics import PARTITIONS_OWNED
from tradewind.scheduler.ports.owning import NO_PRESENCE, Partitions
from tradewind.scheduler.ports.waking import EVERY, WakeChannel, WakeUp, Work
from tradewind.server.partitions import PARTITIONS

_log = structlog.get_logger(__name__)


class OwnPartitions:
    """Takes this replica's share of the partitions: all of them until `rebalance` has found other replicas.

    Other replicas are notified when this one comes, leaves or gives up partitions.
    """

    def __init__(self, partitions: Partitions, wakes: WakeChannel) -> None:
        self._partitions = partitions
        self._wakes = wakes
        self._wanted = frozenset(range(PARTITIONS))
        self._presence = NO_PRESENCE
        self._held: dict[int, int] = {}
        self._suspect: dict[int, int] = {}
        self._refused_ms: dict[int, int] = {}
        """When partitions of this share were first found to be owned by another present replica (store's time)."""
        self._expected: Collection[str] = ()
        """Replicas that may come back after an outage of the store, until `_expected_till_ms` (store's time)."""
        self._expected_till_ms = 0
        self._changed: list[Callable[[], None]] = []

    @property
    def epochs(self) -> Mapping[int, int]:
        """The partitions that this replica owns now, with their epochs.

        A copy: work under way must keep the epoch of a partition that is lost meanwhile, or it would go on as if nobody
        owned the partition.
        """
        return dict(self._held)

    def owns(self, partition: int) -> bool:
        """Say whether this replica owns a partition."""
        return partition in self._held

    @property
    def complete(self) -> bool:
        """Whether this replica owns every partition of its share."""
        return self._held.keys() >= self._wanted

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call back after every gain or loss."""
        self._changed.append(changed)

    async def acquire(self) -> None:
        """Take the partitions of this replica's share that no replica in the last report of `rebalance` owns.

        A replica gives up the partitions of others within a lease. If it still seems to own one of this replica's share
        after that, the store has lost what it was told, and the partition is taken anyway; epochs keep that safe.
        """
        if self._suspect:
            # The report that they are lost may have been about an older epoch.
            suspect, self._suspect = self._suspect, {}
            await self._partitions.release(suspect)
        gained, presence = {}, self._presence
        for partition in sorted(self._wanted - self._held.keys()):
            refused_ms = self._refused_ms.get(partition, presence.at_ms)
            overdue = presence.at_ms > refused_ms + self._partitions.lease_ms
            epoch = await self._partitions.acquire(partition, presence._replace(replicas=()) if overdue else presence)
            if epoch:
                gained[partition] = epoch
                self._refused_ms.pop(partition, None)
            else:
                self._refused_ms[partition] = refused_ms
        if gained:
            _log.info("partitions_taken", partitions=sorted(gained))
            self._held.update(gained)
            self._notify()

    async def rebalance(self, *, alone: bool = False) -> None:
        """Report that this replica is present, with `alone` that no other is; give up partitions of others' shares.

        If the lease had lapsed since the last report, all partitions are lost: others may have taken them. If the store
        was away, the leases of all have lapsed. So that each goes on with what it had, and remembers numbers of cycles
        that the store may have lost, the shares of those who were present before are theirs for another lease.
        """
        before = self._presence
        self._presence = presence = await self._partitions.report_presence(alone=alone)
        if presence.lapsed:
            self.lose(list(self._held), "the lease has lapsed")
            self._expected, self._expected_till_ms = before.replicas, presence.at_ms + self._partitions.lease_ms
        expected = self._expected if presence.at_ms < self._expected_till_ms and not alone else ()
        self._wanted = shares_of([*presence.replicas, *expected, self._partitions.replica])[self._partitions.replica]
        kept = set() if presence.lapsed else self._wanted
        self._refused_ms = {partition: at_ms for partition, at_ms in self._refused_ms.items() if partition in kept}
        if surplus := {each: self._held.pop(each) for each in self._held.keys() - self._wanted}:
            _log.info("partitions_released", partitions=sorted(surplus), replicas=len(presence.replicas))
            self._notify()
            await self._partitions.release(surplus)
        if presence.lapsed or surplus:
            await self._notify_replicas()

    def lose(self, partitions: Iterable[int], reason: str) -> None:
        """Note that somebody else owns these partitions."""
        lost = {partition: self._held.pop(partition) for partition in partitions if partition in self._held}
        if lost:
            _log.warning("partitions_lost", partitions=sorted(lost), why=reason)
            self._suspect |= lost
            self._notify()

    async def release(self) -> None:
        """Give up all partitions, so that others need not wait for the lease to lapse."""
        held, self._held = self._held, {}
        self._notify()
        await self._partitions.leave()
        await self._partitions.release(held)
        await self._notify_replicas()

    async def _notify_replicas(self) -> None:
        await self._wakes.publish(WakeUp(Work.SHARES, EVERY, 0))

    def _notify(self) -> None:
        PARTITIONS_OWNED.set(len(self._held))
        for changed in self._changed:
            changed()
