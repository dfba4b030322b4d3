"""Looking through shards for broken invariants."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from tradewind.node_task_manager.ports.doctor import CacheDoctor, ShardDoctor
from tradewind.node_task_manager.use_cases.dispatch import Dispatcher
from tradewind.server.doctor import Examined, Examiner


@dataclass(frozen=True, slots=True)
class ExamineShard:
    """An Examiner that delivers the effects of mending. With a `cleaner`, it does nothing while another one leads the
    cleaning."""

    doctor: ShardDoctor
    dispatcher: Dispatcher
    cleaner: str

    async def __call__(self, at: str, records: int, recheck: Collection[str] | None, mend: bool) -> Examined:
        looked = await self.doctor.examine(at, records, recheck, mend, self.cleaner)
        self.dispatcher.apply(looked.effects)
        return looked.examined


class ExamineShards:
    """The examiners of all shards; in the background they look only where no other replica leads the cleaning.

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
        caches = [
            partial(each.examine, name, cleaner=cleaner) for each in self._cache_doctors for name in self._caches()
        ]
        return [*shards, *caches]
