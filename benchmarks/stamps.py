"""How late things ran, in a file that many processes append to, one line each: `<how late in ms>`."""

from __future__ import annotations

import os
import time
from pathlib import Path

FILE = "BENCHMARK_STAMPS"
"""The environment variable that names the file."""


def stamp(planned_s: float) -> None:
    """Note how late this moment is; `planned_s` is in seconds since the epoch."""
    line = f"{(time.time() - planned_s) * 1000:.3f}\n"
    # A single write to a file opened for appending is never torn.
    with open(os.environ[FILE], "a", encoding="ascii") as file:
        file.write(line)


def read(path: Path) -> list[float]:
    """Return all noted values in ms."""
    return [float(line) for line in path.read_text(encoding="ascii").split()] if path.exists() else []
