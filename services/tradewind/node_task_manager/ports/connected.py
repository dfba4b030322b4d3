"""Which workers are connected to any replica, and what they offer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class LastOffer:
    """Which worker offered a node type last, and until when (epoch ms); "" and 0 when that is not known."""

    worker_id: str = ""
    until_ms: int = 0


@dataclass(frozen=True, slots=True)
class ConnectionChanges:
    """What has changed at a replica; with `whole` it replaces all earlier changes.

    `workers` says since when each is connected (epoch ms), 0 for one that has left. `node_types` has None for a type
    that some worker there offers, and the last offer for a type that no worker there offers any more.
    """

    workers: Mapping[str, int]
    node_types: Mapping[str, LastOffer | None]
    whole: bool = False


class ConnectedWorkers(Protocol):
    """What replicas report about their connections: all of them read it, and it lapses with the replica."""

    async def record(self, replica: str, keep_ms: int, changes: ConnectionChanges) -> bool:
        """Note a replica's changes, and keep all that it has recorded for `keep_ms`, 0 when it leaves.

        Returns False and notes nothing when earlier changes of the replica are missing or have lapsed and these are not
        `whole`.
        """
        ...

    async def unoffered(self, node_types: Sequence[str]) -> Mapping[str, LastOffer]:
        """Return the given node types that no connected worker offers, each with its last offer."""
        ...

    async def since(self, worker_ids: Sequence[str]) -> Mapping[str, int]:
        """Return since when (epoch ms) each of the given workers is connected; others are left out."""
        ...
