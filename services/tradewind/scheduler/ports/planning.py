"""What planning asks other services: which workers could run a flow, and what would hold it back."""

from collections.abc import Collection
from typing import Protocol

from tradewind.scheduler.domain.placement import WorkerView
from tradewind.scheduler.domain.system_limits import SystemLimits


class Workers(Protocol):
    """The workers that are alive."""

    async def offering(self, node_types: Collection[str]) -> list[WorkerView] | None:
        """Return live workers, even draining ones, that offer any of these types; None when nobody could be asked."""
        ...


class Limits(Protocol):
    """The limits on how many node tasks run."""

    async def limits_for(self, user_id: str) -> SystemLimits | None:
        """Return the current limits for a user and how much is in use; None when nobody could be asked."""
        ...
