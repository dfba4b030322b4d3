"""Standard streams that were closed before the process began."""

import os
import sys


def replace_closed_streams() -> None:
    """Open the null device for each closed standard stream: else the next socket gets its number, and our output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    # Not by their numbers, which what was imported may have taken.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - to the end
