"""Where a gate learns who owns a token: from the access service, or from that service's own use cases."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tradewind.server.access.identity import Identity
from tradewind.server.rates import Rate

Changed = Callable[[str | None], None]
"""Called with the id of a user about whom something has changed; with None when that may be any user."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Calls of a user counted against a day, such as 2026-03-29, in the user's time zone.

    If `retry_after_s` is not 0, they were not counted, and that is the time to wait: until the next day begins, because
    the day's quota has no room for them, or, if `rate_limited`, until the rate admits them.
    """

    date: str
    time_zone: str
    retry_after_s: float = 0.0
    rate_limited: bool = False


class Authority(Protocol):
    """Knows who owns a token."""

    async def authorize(self, digest: str) -> Identity:
        """Return the owner of a token. Raises Unauthenticated, or Unavailable when that cannot be found out now."""
        ...

    async def admit(self, user_id: str, endpoint: str, rate: Rate, calls: int) -> float:
        """Count calls and return 0 if the rate allows them, else return the seconds until it would admit them.

        Raises Unavailable when that cannot be found out now.
        """
        ...

    async def reserve(
        self, user_id: str, endpoint: str, quota: int, calls: int, rate: Rate | None = None
    ) -> Reservation:
        """Count calls against the quota of the user's current day and against `rate`, if both allow them.

        Counts against both or neither. Raises Unavailable, as `admit`.
        """
        ...

    async def refund(self, user_id: str, endpoint: str, date: str, calls: int) -> None:
        """Give back calls that were counted against a day's quota. Raises Unavailable, as `admit`."""
        ...

    async def watch(self, changed: Changed) -> None:
        """Report changes until cancelled; None first, and after each gap."""
        ...

    async def close(self) -> None:
        """Release its resources."""
        ...
