"""Looking through shards for broken invariants."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tradewind.node_task_manager.domain.work import Effects
from tradewind.node_task_manager.use_cases.dispatch import Dispatcher
from tradewind.server.doctor import Examined, Examiner


@dataclass(frozen=True, slots=True)
class Looked:
    """What a step found, and what mending brought about."""

    examined: Examined
    effects: Effects


class ShardDoctor(Protocol):
    """Looks through the store of a shard."""

    async def examine(
        self, at: str, records: int, again: Collection[str] | None, mend: bool, cleaner: str = ""
    ) -> Looked:
        """Take a step, as Examiner says; one for a `cleaner` ends at once unless that leads the cleaning."""
        ...


@dataclass(frozen=True, slots=True)
class ExamineShard:
    """An Examiner; what mending brings about is delivered. With `cleaner`, only while that leads the cleaning."""

    doctor: ShardDoctor
    dispatcher: Dispatcher
    cleaner: str = ""

    async def __call__(self, at: str, records: int, again: Collection[str] | None, mend: bool) -> Examined:
        looked = await self.doctor.examine(at, records, again, mend, self.cleaner)
        self.dispatcher.apply(looked.effects)
        return looked.examined


class ExamineShards:
    """The examiners of all shards; those in the background look only where this replica leads the cleaning."""

    def __init__(self, shards: Sequence[tuple[ShardDoctor, Dispatcher]], replica: str) -> None:
        self._shards = shards
        self._replica = replica

    async def __call__(self, everything: bool) -> Iterable[Examiner]:
        """Return them."""
        cleaner = "" if everything else self._replica
        return [ExamineShard(doctor, dispatcher, cleaner) for doctor, dispatcher in self._shards]
