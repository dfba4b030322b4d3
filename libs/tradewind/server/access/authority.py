"""Where a gate learns whose a token is: from the access service, or from its own use cases."""

from collections.abc import Callable
from typing import Protocol

from tradewind.server.access.identity import Identity
from tradewind.server.rates import Rate

Changed = Callable[[str | None], None]
"""Is told of a user of whom something has changed, None when that may be any user."""


class Authority(Protocol):
    """Knows whose a token is."""

    async def authorize(self, digest: str) -> Identity:
        """Return whose a token is. Raises Unauthenticated, or Unavailable when that cannot be found out now."""
        ...

    async def admit(self, user_id: str, endpoint: str, rate: Rate, calls: int) -> float:
        """Count calls if that keeps within a rate and return 0, else after how many seconds they would be admitted.

        Raises Unavailable when that cannot be found out now.
        """
        ...

    async def watch(self, changed: Changed) -> None:
        """Tell of changes until cancelled; None first, and after each gap."""
        ...

    async def close(self) -> None:
        """Let go of what it needs for that."""
        ...
