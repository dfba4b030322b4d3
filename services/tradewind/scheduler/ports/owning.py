"""Partitions and who owns them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

Epochs = Mapping[int, int]
"""Partitions that the caller owns, each with the epoch under which it does."""


NOT_OWNER: Epochs = MappingProxyType({})
"""For callers that do not act as an owner: any replica may do what a client asks for."""


class Meeting(NamedTuple):
    """Which replicas were here at a time, in ms of the store's clock; `lapsed`: who asks had gone before."""

    at_ms: int
    lapsed: bool
    here: tuple[str, ...]


NOBODY_MET = Meeting(0, False, ())
"""Before the first one: what anybody owns stays theirs."""


class Partitions(Protocol):
    """Which replicas are here, and who of them owns which partition.

    A replica is here for as long as a lease lasts after it said so, and owns nothing any more after that. Nobody has to
    renew what he owns: others take it when they meet without him, and epochs fence him off.
    """

    @property
    def replica(self) -> str:
        """The name under which this replica is met."""
        ...

    async def meet(self, *, alone: bool = False) -> Meeting:
        """Say that this replica is here, and with `alone` that no other one is; return who is."""
        ...

    async def leave(self) -> None:
        """Say that this replica is not here any more."""
        ...

    async def take(self, partition: int, met: Meeting = NOBODY_MET) -> int:
        """Take a partition unless it is owned by one who was met, or has been taken by another since.

        Returns the new epoch, higher than any before, or 0 when somebody owns it.
        """
        ...

    async def release(self, held: Mapping[int, int]) -> None:
        """Leave these partitions to others, as far as they still are the caller's."""
        ...
