"""Which partitions this replica owns, and under which epochs."""

from collections.abc import Callable, Iterable, Mapping

import structlog

from tradewind.scheduler.ports import Partitions
from tradewind.server.partitions import PARTITIONS

_log = structlog.get_logger(__name__)


class OwnPartitions:
    """Takes partitions whose lease has lapsed and renews those it holds.

    `wanted` are the partitions that this replica should own as long as others do not; all of them, until replicas share
    them. `changed` callbacks run after every gain or loss.
    """

    def __init__(self, partitions: Partitions, wanted: Iterable[int] = range(PARTITIONS)) -> None:
        self._partitions = partitions
        self._wanted = tuple(wanted)
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
        return len(self._held) == len(self._wanted)

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call back after every gain or loss."""
        self._changed.append(changed)

    async def take(self, *, force: bool = False) -> None:
        """Take what is wanted and nobody holds; with `force`, whoever holds it."""
        if self._doubted:
            # Whoever said that they are lost may have meant an older epoch: then the lease is still there.
            doubted, self._doubted = self._doubted, {}
            await self._partitions.release(doubted)
        gained = {}
        for partition in self._wanted:
            if partition not in self._held:
                epoch = await self._partitions.take(partition, force=force)
                if epoch:
                    gained[partition] = epoch
        if gained:
            _log.info("partitions_taken", partitions=sorted(gained))
            self._held.update(gained)
            self._tell()

    async def renew(self) -> None:
        """Renew the leases of what is owned."""
        if self._held:
            self.lose(await self._partitions.renew(dict(self._held)), "lease_lost")

    def lose(self, partitions: Iterable[int], why: str) -> None:
        """Own these partitions no more: somebody else does."""
        lost = {partition: self._held.pop(partition) for partition in partitions if partition in self._held}
        if lost:
            _log.warning("partitions_lost", partitions=sorted(lost), why=why)
            self._doubted |= lost
            self._tell()

    async def release(self) -> None:
        """Give everything up, so that others need not wait for the leases to lapse."""
        held, self._held = self._held, {}
        self._tell()
        await self._partitions.release(held)

    def _tell(self) -> None:
        for changed in self._changed:
            changed()
