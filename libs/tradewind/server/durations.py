"""Lengths of time as people write them."""

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def duration_text(milliseconds: int) -> str:
    """Return `5 min` for 300000: in the largest unit that gives a whole number."""
    for size, unit in _UNITS:
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size} {unit}"
    return f"{milliseconds} ms"
