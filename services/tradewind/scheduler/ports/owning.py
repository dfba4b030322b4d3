"""Partitions and who owns them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

Epochs = Mapping[int, int]
"""Partitions that the caller owns, each with the epoch under which it owns it."""


NOT_OWNER: Epochs = MappingProxyType({})
"""For callers that do not act as an owner: any replica may do what a client asks for."""


class Presence(NamedTuple):
    """The replicas present at a time, in ms of the store's clock; `lapsed`: the caller's own presence had lapsed."""

    at_ms: int
    lapsed: bool
    replicas: tuple[str, ...]


NO_PRESENCE = Presence(0, False, ())
"""Before the first report: partitions that somebody owns stay with their owner."""


class Partitions(Protocol):
    """Which replicas are present, and which of them owns which partition.

    A replica that reports its presence counts as present for the length of a lease. When that lapses, it no longer owns
    anything. Ownership itself need not be renewed: the other replicas take the partitions of a replica that is missing
    from what they last saw, and epochs fence it off.
    """

    @property
    def replica(self) -> str:
        """The name under which this replica is present."""
        ...

    @property
    def lease_ms(self) -> int:
        """How long a report of presence counts."""
        ...

    async def report_presence(self, *, alone: bool = False) -> Presence:
        """Report that this replica is present, and with `alone` that no other is; return who is present."""
        ...

    async def leave(self) -> None:
        """Report that this replica leaves."""
        ...

    async def acquire(self, partition: int, presence: Presence = NO_PRESENCE) -> int:
        """Take a partition unless a replica in `presence` owns it, or another has taken it since then.

        Returns the new epoch, higher than any before, or 0 when somebody else owns the partition.
        """
        ...

    async def release(self, held: Mapping[int, int]) -> None:
        """Give up these partitions, if they still are the caller's."""
        ...
