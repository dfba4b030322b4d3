"""Time zones for tests of days under the true clock."""

from datetime import UTC, datetime


def zone_far_from_midnight() -> str:
    """Return an IANA time zone in which the day does not end within the next two hours."""
    return "Europe/Berlin" if 0 <= datetime.now(UTC).hour < 18 else "Asia/Tokyo"
