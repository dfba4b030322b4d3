"""What publishing the ends of cycles needs from stores and from other services."""

from collections.abc import Collection, Sequence
from typing import Protocol

from tradewind.scheduler.domain.ended_run import EndedRun


class Ends(Protocol):
    """Ends of runs that are waiting to be delivered; the script that ends a run puts them here.

    There are two such stores: one of ends to publish to the trigger service, filled while somebody listens, and one of
    ends that nodes of other flows wait for.
    """

    async def waiting(self, partitions: Collection[int], limit: int) -> list[EndedRun]:
        """Return up to `limit` ends of each partition that have not been delivered, oldest first."""
        ...

    async def remove(self, ends: Sequence[EndedRun]) -> None:
        """Remove ends that have been delivered."""
        ...


class Events(Protocol):
    """Events of the trigger service. Every method raises PeerUnavailable when it cannot be reached."""

    async def has_listeners(self, name: str) -> bool:
        """Say whether any trigger listens to events of this name."""
        ...

    async def publish(self, name: str, event_id: str, payload_json: str) -> None:
        """Publish an event to whoever listens; nobody gets the same id twice.

        Raises PeerRefused for an event that is at fault.
        """
        ...
