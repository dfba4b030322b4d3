"""What the doctor needs from the stores of a shard."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from tradewind.node_task_manager.ports.work import Effects
from tradewind.server.doctor import Examined


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
        """Take a step, as Examiner says; with a `cleaner`, do nothing while another one leads the cleaning."""
        ...


class CacheDoctor(Protocol):
    """Looks through the caches of a shard."""

    async def examine(
        self, name: str, at: str, records: int, recheck: Collection[str] | None, mend: bool, cleaner: str = ""
    ) -> Examined:
        """Take a step in the cache `name`, as Examiner says; with a `cleaner`, do nothing unless it leads the cleaning,
        as it does once it has examined the shard."""
        ...
