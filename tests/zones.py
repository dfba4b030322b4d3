"""Time zones for tests of days under the true clock, and of machines that are somewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest


def zone_far_from_midnight() -> str:
    """Return an IANA time zone in which the day does not end within the next two hours."""
    return "Europe/Berlin" if 0 <= datetime.now(UTC).hour < 18 else "Asia/Tokyo"


@contextmanager
def machine_in(zone: str) -> Iterator[None]:
    """Have this process, and those that it starts, in a time zone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        yield
    time.tzset()
