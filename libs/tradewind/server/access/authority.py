"""Where a gate learns whose a token is: from the access service, or from its own use cases."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tradewind.server.access.identity import Identity
from tradewind.server.rates import Rate

Changed = Callable[[str | None], None]
"""Is told of a user of whom something has changed, None when that may be any user."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Calls of a user that were counted for a day, as 2026-03-29, of the user's time zone.

    They were not when `retry_after_s` is not 0: the day's quota does not hold them, and the next day begins then; or
    they are `rate_limited`, and the rate would admit them then.
    """

    date: str
    time_zone: str
    retry_after_s: float = 0.0
    rate_limited: bool = False


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

    async def reserve(
        self, user_id: str, endpoint: str, quota: int, calls: int, rate: Rate | None = None
    ) -> Reservation:
        """Count calls for the user's day of now if it then has `quota` at most, and for `rate` if that admits them.

        For both, or for none. Raises Unavailable, as `admit`.
        """
        ...

    async def refund(self, user_id: str, endpoint: str, date: str, calls: int) -> None:
        """Take back calls that were counted for a day. Raises Unavailable, as `admit`."""
        ...

    async def watch(self, changed: Changed) -> None:
        """Tell of changes until cancelled; None first, and after each gap."""
        ...

    async def close(self) -> None:
        """Let go of what it needs for that."""
        ...
