"""Values as JSON text, in the same way for nodes and clients."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from datetime import date, datetime, timedelta
from pathlib import PurePath
from typing import Any

import msgspec

_ADVICE = {"DataFrame": '; give its to_dict("records")', "NAType": "; give null or leave it out"}
"""What to do instead with values of pandas, by the names of their types."""
_TIME_ADVICE = ": it has no date from the years 1 to 9999, or no length in days or seconds; give text or a number"
_LONG_FLOATS = ("float128", "float96", "longdouble")
"""How numpy calls its longest floats, by machine."""
_TIMES = ("datetime64", "timedelta64")
_FINE_TIME = re.compile(r"(datetime64|timedelta64)\[(?:ns|ps|fs|as)\]")
"""Times of numpy's that no datetime can hold; those of pandas with a zone are no match."""


def encode_json(value: Any, path: str = "the value") -> bytes:
    """Return compact JSON text for anything that msgspec or `to_builtin` can convert.

    Raises ValueError for what JSON cannot express, which names the place below `path`.
    """
    try:
        text = _encode(value)
        # msgspec writes NaN and infinities as null, so the value needs checking only if its text contains null.
        if value is not None and text.find(b"null") >= 0:
            _refuse_non_finite(msgspec.to_builtins(value, enc_hook=to_builtin), path)
    except RecursionError as error:
        raise ValueError("it is nested too deeply, or contains itself") from error
    except (TypeError, OverflowError, msgspec.MsgspecError) as error:
        place = _place_of_fault(value, path)
        raise ValueError(str(error) if place == path else f"{place}: {error}") from error
    return text


def to_builtin(value: Any) -> Any:
    """Convert a value that msgspec does not know to one that it does.

    These are numpy's scalars and arrays, pydantic's models, paths of files, and subclasses of plain types, such as
    pandas' Timestamp.
    """
    if hasattr(value, "tolist"):
        return _listed(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, datetime | date | timedelta):
        return _plain_time(value)
    for plain in (str, int, float):
        if isinstance(value, plain):
            return plain(value)
    if value is None or isinstance(value, tuple | frozenset | msgspec.Struct) or is_dataclass(type(value)):
        # msgspec knows these as values; it asks for them only as keys.
        raise TypeError(f"the keys of an object must be text or numbers, not a {type(value).__name__}")
    name = type(value).__qualname__
    advice = f"; give a {'dict' if isinstance(value, Mapping) else 'list'} of it" if isinstance(value, Iterable) else ""
    raise TypeError(f"a value of type {name} cannot be written as JSON{_ADVICE.get(name, advice)}")


def _listed(array: Any) -> Any:
    """Return an array or scalar of numpy, or a column of pandas, as plain values.

    numpy itself lists long doubles as they are, which would be asked for again and again, and as bare numbers times
    that are finer than microseconds, beyond the year 9999, or lengths in months.
    """
    dtype = str(getattr(array, "dtype", ""))
    if dtype in _LONG_FLOATS:
        return array.astype(float).tolist()
    finer = _FINE_TIME.fullmatch(dtype)
    listed = (array.astype(f"{finer[1]}[us]") if finer else array).tolist()
    bare = dtype.startswith(_TIMES) and _has_number(listed)
    if bare or hasattr(listed, "tolist"):
        raise TypeError(f"a value of type {dtype} cannot be written as JSON{_TIME_ADVICE if bare else ''}")
    return listed


def _has_number(listed: Any) -> bool:
    return any(map(_has_number, listed)) if isinstance(listed, list) else isinstance(listed, int)


def _plain_time(value: date | timedelta) -> date | timedelta:
    if value != value:  # pandas' NaT is a datetime
        raise TypeError(f"{value} is not a time; give null or leave it out")
    if isinstance(value, timedelta):
        return timedelta(value.days, value.seconds, value.microseconds)
    if isinstance(value, datetime):
        return datetime.combine(value.date(), value.timetz())
    return date(value.year, value.month, value.day)


def _refuse_non_finite(value: Any, path: str) -> None:
    pending = [(path, value)]
    while pending:
        at, item = pending.pop()
        if isinstance(item, float) and not math.isfinite(item):
            raise ValueError(f"{at} is {item}; give null or leave it out")
        pending.extend(_within(item, at))


def _place_of_fault(value: Any, path: str) -> str:
    """Return where the innermost part of `value` is, itself at `path`, that cannot be encoded."""
    parts: Iterator[tuple[str, Any]] = iter([(path, value)])
    while faulty := next((part for part in parts if not _can_be_encoded(part[1])), None):
        path = faulty[0]
        parts = _within(faulty[1], path)
    return path


def _can_be_encoded(value: Any) -> bool:
    try:
        _encode(value)
    except Exception:
        return False
    return True


def _within(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the values within a list, tuple or dict, with their places."""
    if isinstance(value, dict):
        yield from ((f"{path}.{key}", inner) for key, inner in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"{path}[{index}]", inner) for index, inner in enumerate(value))


_encode = msgspec.json.Encoder(enc_hook=to_builtin).encode
