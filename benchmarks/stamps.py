"""What ran when, in a file that many processes append to: a line each, `<how late in ms>`."""

from __future__ import annotations

import os
import time
from pathlib import Path

FILE = "BENCHMARK_STAMPS"
"""The variable that names the file."""


def stamp(planned_s: float) -> None:
    """Note how late this moment is; planned in seconds since the epoch."""
    line = f"{(time.time() - planned_s) * 1000:.3f}\n"
    # One write to a file opened for appending is never torn.
    with open(os.environ[FILE], "a", encoding="ascii") as file:
        file.write(line)


def read(path: Path) -> list[float]:
    """Return all that was noted, in ms, in order of size."""
    return sorted(map(float, path.read_text(encoding="ascii").split())) if path.exists() else []


def quantile(late: list[float], share: float) -> float:
    """Return the value below which a share of them lies; they are in order."""
    return late[min(len(late) - 1, int(share * len(late)))]
