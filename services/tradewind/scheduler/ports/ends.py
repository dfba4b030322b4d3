"""What telling the ends of cycles needs of stores and of other services."""

from collections.abc import Collection, Sequence
from typing import Protocol

from tradewind.scheduler.domain.ended_run import EndedRun


class Ends(Protocol):
    """Ends of runs that are to be told; the script that ends a run puts them here.

    One store is of ends that the trigger service is told of, while somebody listens; another of those of runs that
    nodes of other flows wait for.
    """

    async def waiting(self, partitions: Collection[int], limit: int) -> list[EndedRun]:
        """Return up to `limit` ends of each partition that are not told yet, the oldest first."""
        ...

    async def told(self, ends: Sequence[EndedRun]) -> None:
        """Let go of ends that are told."""
        ...


class Events(Protocol):
    """Events of the trigger service. Every method raises PeerUnavailable when it cannot be reached."""

    async def listened(self, name: str) -> bool:
        """Say whether any trigger listens to events of this name."""
        ...

    async def publish(self, name: str, event_id: str, payload_json: str) -> None:
        """Tell an event to whoever listens; the same id again is told to nobody twice.

        Raises PeerRefused for an event that is at fault.
        """
        ...
