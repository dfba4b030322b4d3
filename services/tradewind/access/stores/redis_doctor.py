"""Examines users, sessions and counters in Redis for broken invariants."""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta

from tradewind.access.stores.redis import ROLES, RedisAccess
from tradewind.server.access.methods import counted_names
from tradewind.server.clock import Clock
from tradewind.server.doctor import Examined, Examiner, Finding
from tradewind.server.partitions import PARTITIONS
from tradewind.server.rates import LONGEST_MS
from tradewind.server.redis.script import Script

_EXAMINE = Script(__name__, "examine", tuple[int, list[tuple[str, str, str, bool]], str])

_DAYS = range(-7, 2)
"""Days from today (UTC) for which calls may be counted: the past week, and tomorrow, which has begun in the east."""


class RedisAccessExaminer:
    """An Examiner of everything that the index of users leads to; a place is `<partition>:<user>`."""

    def __init__(self, access: RedisAccess, clock: Clock) -> None:
        self._access = access
        self._clock = clock
        self._endpoints = counted_names()

    async def __call__(self, at: str, records: int, recheck: Collection[str] | None, mend: bool) -> Examined:
        number, _, after = (at or "0:").partition(":")
        partition = int(number)
        today = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).date()
        checked, findings, last = await self._access.run(
            _EXAMINE,
            partition,
            [self._access.keys.users(partition)],
            after=after,
            count=records,
            roles=ROLES,
            endpoints=self._endpoints,
            dates=[(today + timedelta(days=day)).isoformat() for day in _DAYS],
            longest_ms=LONGEST_MS,
            recheck=None if recheck is None else list(recheck),
            mend=mend,
        )
        if not last:
            partition += 1
        place = f"{partition}:{last}" if partition < PARTITIONS else ""
        return Examined(checked, tuple(Finding(*each) for each in findings), place)

    async def examiners(self, everything: bool) -> Iterable[Examiner]:
        """Return only this examiner: every replica examines everything."""
        return [self]
