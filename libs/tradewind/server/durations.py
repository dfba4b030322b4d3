"""Lengths of time as people write them."""

import math

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def duration_text(milliseconds: int) -> str:
    """Return `5 min` for 300000: in the largest unit that gives a whole number."""
    for size, unit in _UNITS:
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size} {unit}"
    return f"{milliseconds} ms"


def rounded_up(seconds: float) -> str:
    """Return `2 h` for 7180 s: the next whole number in the largest unit of which there are more than one."""
    for size, unit in _UNITS:
        if seconds * 1000 > size:
            return f"{math.ceil(seconds * 1000 / size)} {unit}"
    return f"{math.ceil(seconds * 1000)} ms"
