"""Looking through shards for broken invariants."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tradewind.node_task_manager.ports.work import Effects
from tradewind.node_task_manager.use_cases.dispatch import Dispatcher
from tradewind.server.doctor import Examined, Examiner


@dataclass(frozen=True, slots=True)
class ShardExamination:
    """What a step found, and the effects of mending."""

    examined: Examined
    effects: Effects


class ShardDoctor(Protocol):
    """Looks through the store of a shard."""

    async def examine(
        self, at: str, records: int, recheck: Collection[str] | None, mend: bool, cleaner: str = ""
    ) -> ShardExamination:
        """Take a step, as Examiner says; with a `cleaner`, do nothing unless it leads the cleaning."""
        ...


@dataclass(frozen=True, slots=True)
class ExamineShard:
    """An Examiner that delivers the effects of mending. A `cleaner` lets it work only while that leads the cleaning."""

    doctor: ShardDoctor
    dispatcher: Dispatcher
    cleaner: str = ""

    async def __call__(self, at: str, records: int, recheck: Collection[str] | None, mend: bool) -> Examined:
        looked = await self.doctor.examine(at, records, recheck, mend, self.cleaner)
        self.dispatcher.apply(looked.effects)
        return looked.examined


class CacheDoctor(Protocol):
    """Looks through the caches of a shard."""

    async def examine(
        self, name: str, at: str, records: int, recheck: Collection[str] | None, mend: bool, cleaner: str = ""
    ) -> Examined:
        """Take a step in the cache `name`, as Examiner says; a `cleaner` counts as in ShardDoctor."""
        ...


@dataclass(frozen=True, slots=True)
class ExamineCache:
    """An Examiner of a cache in a shard. A `cleaner` lets it work only while that leads the cleaning."""

    doctor: CacheDoctor
    name: str
    cleaner: str = ""

    async def __call__(self, at: str, records: int, recheck: Collection[str] | None, mend: bool) -> Examined:
        return await self.doctor.examine(self.name, at, records, recheck, mend, self.cleaner)


class ExamineShards:
    """The examiners of all shards; in the background they look only where this replica leads the cleaning.

    `caches` returns the names of the present caches.
    """

    def __init__(
        self,
        shards: Sequence[tuple[ShardDoctor, Dispatcher]],
        cache_doctors: Iterable[CacheDoctor],
        caches: Callable[[], Iterable[str]],
        replica: str,
    ) -> None:
        self._shards = shards
        self._cache_doctors = tuple(cache_doctors)
        self._caches = caches
        self._replica = replica

    async def __call__(self, everything: bool) -> Iterable[Examiner]:
        """Return the examiners; unless `everything`, they are for the background."""
        cleaner = "" if everything else self._replica
        shards = [ExamineShard(doctor, dispatcher, cleaner) for doctor, dispatcher in self._shards]
        caches = [ExamineCache(each, name, cleaner) for each in self._cache_doctors for name in self._caches()]
        return [*shards, *caches]
