"""Partitions and who owns them."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

Epochs = Mapping[int, int]
"""Partitions that the caller owns, each with the epoch under which it does."""


NOT_OWNER: Epochs = MappingProxyType({})
"""For callers that do not act as an owner: any replica may do what a client asks for."""


class Partitions(Protocol):
    """Who owns which partition."""

    async def take(self, partition: int, *, force: bool = False) -> int:
        """Take a partition whose lease has lapsed, or with `force` from whoever holds it.

        Returns the new epoch, higher than any before, or 0 when somebody holds it.
        """
        ...

    async def renew(self, held: Mapping[int, int]) -> set[int]:
        """Renew the leases of these partitions and return those that are lost: lapsed, or somebody else's."""
        ...

    async def release(self, held: Mapping[int, int]) -> None:
        """End the leases of these partitions as far as they still are the caller's."""
        ...

    async def meet(self) -> Sequence[str]:
        """Say that this replica is here for as long as a lease lasts; return the names of all that are."""
        ...

    async def leave(self) -> None:
        """Say that this replica is not here any more."""
        ...
