"""Counts the calls of users by day."""

from collections.abc import Mapping
from dataclasses import replace

import structlog

from tradewind.access.domain.day import Day, day_of
from tradewind.access.ports import QuotaCounts, UserStore
from tradewind.access.use_cases.users import get_user
from tradewind.server.access.authority import Reservation
from tradewind.server.access.roles import Role
from tradewind.server.clock import Clock
from tradewind.server.rates import Rate

_log = structlog.get_logger(__name__)

_MAX_ZONES = 10_000
"""How many users' time zones are remembered, if they are not UTC."""


class DailyQuotas:
    """Counts the calls of users in a day of their own time zone; `limits` holds the quotas by endpoint.

    A time zone that another replica, with newer tzdata, has accepted may be unknown here: its days are those of UTC.
    """

    def __init__(self, users: UserStore, counts: QuotaCounts, clock: Clock, limits: Mapping[str, int]) -> None:
        self._users = users
        self._counts = counts
        self._clock = clock
        self._limits = limits
        self._zones: dict[str, str] = {}
        self._unknown_zones: set[str] = set()

    async def reserve(
        self, user_id: str, endpoint: str, quota: int, calls: int, rate: Rate | None = None
    ) -> Reservation:
        """Count calls for the present day, if it then has at most `quota` and `rate` admits them.

        The store is asked once, or again if the user's time zone is not the one remembered here.
        """
        zone = self._zones.get(user_id, "UTC")
        while True:
            day = self._day(zone)
            reserved = await self._counts.reserve(user_id, endpoint, day, quota, calls, rate)
            if not reserved.time_zone:
                break
            zone = self._remember_zone(user_id, reserved.time_zone)
        if reserved.wait_ms:
            return Reservation(day.date, zone, reserved.wait_ms / 1000, rate_limited=True)
        return Reservation(day.date, zone, day.left_ms / 1000 if reserved.full else 0)

    def _remember_zone(self, user_id: str, zone: str) -> str:
        self._zones.pop(user_id, None)
        if len(self._zones) >= _MAX_ZONES:
            del self._zones[next(iter(self._zones))]
        self._zones[user_id] = zone
        return zone

    async def refund(self, user_id: str, endpoint: str, date: str, calls: int) -> None:
        """Take calls off the count of a day."""
        await self._counts.refund(user_id, endpoint, date, calls)

    async def used(self, user_id: str) -> tuple[Day, Mapping[str, tuple[int, int]]]:
        """Return a user's present day, and by endpoint how many calls of that day are used and how many allowed.

        Only users with the role user have quotas. Raises InvalidInput, NotFound.
        """
        user = await get_user(self._users, user_id)
        day = self._day(user.time_zone)
        if user.role is not Role.USER or not self._limits:
            return day, {}
        used = await self._counts.used(user_id, day.date)
        return day, {endpoint: (used.get(endpoint, 0), limit) for endpoint, limit in sorted(self._limits.items())}

    def _day(self, time_zone: str) -> Day:
        now_ms = self._clock.now_ms()
        try:
            return day_of(time_zone, now_ms)
        except ValueError as error:
            if time_zone not in self._unknown_zones:
                self._unknown_zones.add(time_zone)
                hint = "the calls of its users count by UTC here; update tzdata on this machine"
                _log.error("time_zone_unknown", time_zone=time_zone, error=error, hint=hint)
            # It keeps the user's time zone, since the store counts for days of no other.
            return replace(day_of("UTC", now_ms), time_zone=time_zone)
