"""The days of users, each in the user's own time zone."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from tradewind.server.schedules.grids import read_zone

KEPT_MS = 3_600_000
"""How long the counts of a day are kept after its end: when clocks go back at midnight, part of the day repeats."""


@dataclass(frozen=True, slots=True)
class Day:
    """A date in a time zone, such as 2026-03-29, when the next one begins (epoch ms), and how far off that is (ms)."""

    date: str
    ends_at: int
    left_ms: int
    time_zone: str


def day_of(time_zone: str, now_ms: int) -> Day:
    """Return the day at a time (epoch ms) in an IANA time zone. Raises ValueError for an unknown zone."""
    zone = read_zone(time_zone)
    today = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(zone).date()
    tomorrow = today + timedelta(days=1)
    # If clocks repeat midnight, the day begins only once: at the first one to come. If they skip midnight, the day
    # begins at the moment of the skip.
    midnights = (datetime(tomorrow.year, tomorrow.month, tomorrow.day, tzinfo=zone, fold=fold) for fold in (0, 1))
    ends_at = next(ms for each in midnights if (ms := round(each.timestamp() * 1000)) > now_ms)
    return Day(today.isoformat(), ends_at, ends_at - now_ms, time_zone)


def is_date(text: str) -> bool:
    """Say whether a text is a date such as 2026-03-29."""
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
