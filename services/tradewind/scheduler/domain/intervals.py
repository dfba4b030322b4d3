"""Durations as people write them: seconds as a number, or text such as `500ms`, `5s`, `5m`, `1h`, `1d`."""

import re
from decimal import Decimal

from tradewind.scheduler.domain.paths import shown

LONGEST_MS = 3650 * 86_400_000
"""Ten years: the longest duration accepted, in milliseconds."""

_UNITS_MS = {"": 1000, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TEXT = re.compile(r"(-?)([0-9]{1,18}(?:\.[0-9]{1,40})?)(ms|s|m|h|d|)", re.ASCII)
_FORMS = 'give seconds as a number, or text such as "500ms", "5s", "5m", "1h" or "1d"'


def parse_duration(value: object) -> int:
    """Return a duration of Weather Syntax in milliseconds, 0 or more.

    Raises ValueError, whose text is for people, when it is not a duration, is negative, is finer than a millisecond or
    is longer than ten years.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"must be a duration, is {shown(value)}; {_FORMS}")
    match = _TEXT.fullmatch(value.strip() if isinstance(value, str) else _decimal_text(value))
    if match is None:
        raise ValueError(f"cannot read {shown(value)} as a duration; {_FORMS}")
    sign, number, unit = match.groups()
    milliseconds = Decimal(number) * _UNITS_MS[unit]
    if sign and milliseconds:
        raise ValueError(f"must not be negative, is {shown(value)}")
    if milliseconds > LONGEST_MS:
        raise ValueError(f"must be at most 3650d (ten years), is {shown(value)}")
    if milliseconds != int(milliseconds):
        raise ValueError(f"must be a whole number of milliseconds, is {shown(value)}")
    return int(milliseconds)


def format_duration(milliseconds: int) -> int | str:
    """Return a duration as canonical definitions write it: whole seconds as a number, anything else as `<n>ms`."""
    seconds, rest = divmod(milliseconds, 1000)
    return f"{milliseconds}ms" if rest else seconds


def _decimal_text(value: float) -> str:
    """Return a number's shortest decimal notation without exponent; numbers out of range still read as too long."""
    if abs(value) > LONGEST_MS:
        return f"{'-' if value < 0 else ''}{LONGEST_MS}"
    if isinstance(value, int):
        return str(value)
    # 0.1 * 3 is meant as 0.3. But a tiny number must not become 0, because 0 means "run once".
    return format(Decimal(repr(round(value, 9) or value)), "f")
