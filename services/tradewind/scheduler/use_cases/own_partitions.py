"""Which partitions this replica owns, and under which epochs."""

from collections.abc import Callable, Iterable, Mapping

import structlog

from tradewind.scheduler.domain.sharing import shares_of
from tradewind.scheduler.metrics import PARTITIONS_OWNED
from tradewind.scheduler.ports.owning import NOBODY_MET, Partitions
from tradewind.scheduler.ports.waking import EVERY, WakeChannel, WakeUp, Work
from tradewind.server.partitions import PARTITIONS

_log = structlog.get_logger(__name__)


class OwnPartitions:
    """Takes the share of this replica, `name`, in the partitions: all of them until `share` has found others.

    `changed` callbacks run after every gain or loss. Others are told when it comes, leaves or gives something up.
    """

    def __init__(self, partitions: Partitions, name: str, wakes: WakeChannel) -> None:
        self._partitions = partitions
        self._wakes = wakes
        self._name = name
        self._wanted = frozenset(range(PARTITIONS))
        self._met = NOBODY_MET
        self._held: dict[int, int] = {}
        self._doubted: dict[int, int] = {}
        self._changed: list[Callable[[], None]] = []

    @property
    def epochs(self) -> Mapping[int, int]:
        """The partitions that are owned now, each with the epoch under which it is.

        A copy: what is lost while something is under way must not go on as if nobody owned it.
        """
        return dict(self._held)

    def owns(self, partition: int) -> bool:
        """Say whether a partition is owned."""
        return partition in self._held

    @property
    def complete(self) -> bool:
        """Whether every partition that is wanted is owned."""
        return self._held.keys() >= self._wanted

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call back after every gain or loss."""
        self._changed.append(changed)

    async def take(self) -> None:
        """Take what is wanted and was not owned by anybody met by `share`."""
        if self._doubted:
            # Whoever said that they are lost may have meant an older epoch.
            doubted, self._doubted = self._doubted, {}
            await self._partitions.release(doubted)
        gained = {}
        for partition in sorted(self._wanted - self._held.keys()):
            epoch = await self._partitions.take(partition, self._met)
            if epoch:
                gained[partition] = epoch
        if gained:
            _log.info("partitions_taken", partitions=sorted(gained))
            self._held.update(gained)
            self._tell()

    async def share(self, *, alone: bool = False) -> None:
        """Say that this replica is here, with `alone` that no other one is; give up what is the share of others now.

        All is lost when it had not said so for the time of a lease: others may have taken it.
        """
        self._met = met = await self._partitions.meet(alone=alone)
        if met.lapsed:
            self.lose(list(self._held), "the lease has lapsed")
        self._wanted = shares_of([*met.here, self._name])[self._name]
        if too_much := {each: self._held.pop(each) for each in self._held.keys() - self._wanted}:
            _log.info("partitions_given_up", partitions=sorted(too_much), replicas=len(met.here))
            self._tell()
            await self._partitions.release(too_much)
        if met.lapsed or too_much:
            await self._have_shared()

    def lose(self, partitions: Iterable[int], why: str) -> None:
        """Own these partitions no more: somebody else does."""
        lost = {partition: self._held.pop(partition) for partition in partitions if partition in self._held}
        if lost:
            _log.warning("partitions_lost", partitions=sorted(lost), why=why)
            self._doubted |= lost
            self._tell()

    async def release(self) -> None:
        """Give everything up, so that others need not wait for the lease to lapse."""
        held, self._held = self._held, {}
        self._tell()
        await self._partitions.leave()
        await self._partitions.release(held)
        await self._have_shared()

    async def _have_shared(self) -> None:
        await self._wakes.tell(WakeUp(Work.SHARES, EVERY, 0))

    def _tell(self) -> None:
        PARTITIONS_OWNED.set(len(self._held))
        for changed in self._changed:
            changed()
