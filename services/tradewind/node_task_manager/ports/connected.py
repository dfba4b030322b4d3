"""Which workers are connected to any replica, and what they offer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class LastOffer:
    """Who was the last to offer a node type, until when (epoch ms); "" and 0 when that is not known."""

    worker_id: str = ""
    until_ms: int = 0


@dataclass(frozen=True, slots=True)
class ConnectionNews:
    """What has changed at a replica; with `whole` what was told before does not count.

    Workers with the time since which they are connected (epoch ms), 0 for those that are not any more; node types with
    None for those that somebody there offers, and with who was the last for those that nobody there offers any more.
    """

    workers: Mapping[str, int]
    node_types: Mapping[str, LastOffer | None]
    whole: bool = False


class ConnectedWorkers(Protocol):
    """What replicas tell of their connections: it is read by all of them, and lapses with the replica."""

    async def tell(self, replica: str, keep_ms: int, news: ConnectionNews) -> bool:
        """Note news of a replica, and that all it has told is good for so long, 0 when it leaves.

        False, and nothing is noted, of a replica that has told nothing, or too long ago, unless it is the whole.
        """
        ...

    async def unoffered(self, node_types: Sequence[str]) -> Mapping[str, LastOffer]:
        """Return those of the node types that no connected worker offers."""
        ...

    async def since(self, worker_ids: Sequence[str]) -> Mapping[str, int]:
        """Return of those of the workers that are connected since when (epoch ms)."""
        ...
