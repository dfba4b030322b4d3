"""Days of users, each in a time zone of their own."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from tradewind.server.schedules.grids import read_zone

KEPT_MS = 3_600_000
"""For so long after its end what was counted for a day is kept: clocks that go back at midnight repeat it."""


@dataclass(frozen=True, slots=True)
class Day:
    """A day of a time zone as 2026-03-29, when the next one begins (epoch ms), and how long that is from now (ms)."""

    date: str
    ends_at: int
    left_ms: int
    time_zone: str


def day_of(time_zone: str, now_ms: int) -> Day:
    """Return the day that it is at a time (epoch ms) in an IANA time zone. Raises ValueError for one there is not."""
    zone = read_zone(time_zone)
    today = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(zone).date()
    tomorrow = today + timedelta(days=1)
    # A midnight that clocks repeat begins the day once only: the first that is to come. One that they leave out is the
    # moment at which they do.
    midnights = (datetime(tomorrow.year, tomorrow.month, tomorrow.day, tzinfo=zone, fold=fold) for fold in (0, 1))
    ends_at = next(ms for each in midnights if (ms := round(each.timestamp() * 1000)) > now_ms)
    return Day(today.isoformat(), ends_at, ends_at - now_ms, time_zone)


def is_date(text: str) -> bool:
    """Say whether a text is a day as 2026-03-29."""
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
