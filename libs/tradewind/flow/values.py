"""The values in Weather Syntax: JSON values, and durations, which Python code may give as `timedelta`."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, time, timedelta
from typing import Any, TypeAlias

from tradewind.flow.errors import FlowError

Duration: TypeAlias = int | float | str | timedelta
"""Seconds, text such as `500ms`, `5s`, `5m`, `1h`, `1d`, or a timedelta of whole milliseconds."""

MAX_DURATION_S = 315_576_000_000
"""The longest duration that the contract's Duration can hold: 10 000 years."""

_MAX_DEPTH = 100
_MAX_PATH_LENGTH = 60
"""Characters to tell of the path to what is nested too deeply: a list that holds itself has the same step all over."""
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|)", re.ASCII)
_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def json_copy(value: object, path: str, depth: int = 0) -> Any:
    """Return a copy of `value` as JSON would give it back, with tuples and numpy's arrays as lists.

    Raises FlowError, with the path of the culprit, for anything that JSON cannot express or that is nested more than
    100 levels deep.
    """
    if depth > _MAX_DEPTH:
        shown_path = path if len(path) <= _MAX_PATH_LENGTH else f"{path[:_MAX_PATH_LENGTH]}…"
        raise FlowError(f"is nested more than {_MAX_DEPTH} levels deep", shown_path)
    if isinstance(value, str):
        return checked_text(value, path)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise FlowError(f"{value} is not a JSON number", path)
        return value
    if isinstance(value, Mapping):
        return {_key(key, path): json_copy(item, f"{path}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [json_copy(item, f"{path}[{place}]", depth + 1) for place, item in enumerate(value)]
    if hasattr(value, "tolist"):
        return json_copy(value.tolist(), path, depth)
    hint = f'; give its isoformat(), "{value.isoformat()}"' if isinstance(value, date | time) else ""
    raise FlowError(f"{type_with_article(value)} is not a JSON value{hint}", path)


def type_with_article(value: object) -> str:
    """Return the type of a value with its article: `a Node`, `an int`."""
    name = type(value).__name__
    # By sound: names of types that begin with a U, such as UUID and Union, mostly sound as "you".
    return f"{'an' if name[:1].lower() in 'aeio' else 'a'} {name}"


def checked_text(value: str, path: str) -> str:
    """Return `value`. Raises FlowError for a lone surrogate: an escape in JSON may be one, no message can hold it."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise FlowError(f"has {value[error.start]!r}, half a character: write the whole one", path) from None
    return value


def duration(value: Duration, path: str) -> int | float | str:
    """Return a duration as Weather Syntax writes it; whether text is a valid one is for the server to say.

    Raises FlowError for anything but a number, text or timedelta, and for a timedelta finer than a millisecond.
    """
    if isinstance(value, timedelta):
        milliseconds, rest = divmod(value, timedelta(milliseconds=1))
        if rest:
            raise FlowError(f"{value} is finer than a millisecond", path)
        return milliseconds // 1000 if milliseconds % 1000 == 0 else f"{milliseconds}ms"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise FlowError(f'give seconds, text such as "5m", or a timedelta, not {kind_of(value)}', path)
    if isinstance(value, float) and not math.isfinite(value):
        raise FlowError(f"{value} is not a duration", path)
    return value


def given_fields(convert: Callable[[Any, str], Any], given: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return what was given of an object's fields, None being nothing; `convert(value, path)` makes each value.

    `path` is that of the object.
    """
    prefix = f"{path}." if path else ""
    return {name: convert(value, f"{prefix}{name}") for name, value in given.items() if value is not None}


def seconds_in(length: Duration) -> float:
    """Return a length of time in seconds. Raises ValueError for invalid text, TypeError for other types of value."""
    if isinstance(length, timedelta):
        return length.total_seconds()
    if not isinstance(length, str):
        if isinstance(length, bool) or not hasattr(length, "__float__"):
            raise TypeError(f'give seconds, text such as "5m", or a timedelta, not {kind_of(length)}')
        try:
            return float(length)
        except OverflowError:
            return math.inf
    match = _LENGTH.fullmatch(length.strip())
    if match is None:
        raise ValueError(f'"{length}" is not a length of time: give seconds, or text such as "500ms", "5s", "5m"')
    return float(match[1]) * _UNITS[match[2]]


def kind_of(value: object) -> str:
    """Return what kind of value it is, in JSON's terms."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, Sequence):
        return "a list"
    return f"a {type(value).__name__}"


def _key(key: object, path: str) -> str:
    if not isinstance(key, str):
        raise FlowError(f"the key {key!r} is not text", path)
    return checked_text(key, path)
