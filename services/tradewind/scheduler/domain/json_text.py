"""Reads JSON text, noting where it is wrong, and writes JSON in the one canonical form."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from tradewind.scheduler.domain.fault_list import FaultList
from tradewind.server.quoting import quoted

UNREADABLE = object()
"""The value that `read_json_text` returns for text that is not JSON."""


_canonical = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def canonical_json(value: Any) -> str:
    """Return compact JSON text with sorted keys: equal values give equal text. `value` must hold finite numbers.

    Meanwhile no other thread has a turn: `joined_object` and `joined_list` make large text of smaller pieces.
    """
    return _canonical.encode(value)


def joined_object(fields: Mapping[str, str]) -> str:
    """Return an object in canonical form whose values are given as canonical JSON text."""
    return "{" + ",".join(f"{canonical_json(name)}:{fields[name]}" for name in sorted(fields)) + "}"


def joined_list(items: Iterable[str]) -> str:
    """Return a list in canonical form whose items are given as canonical JSON text."""
    return f"[{','.join(items)}]"


def digest_of(text: str) -> str:
    """Return the SHA-256 of a text's UTF-8 bytes, as 64 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_json_text(text: str, path: str, faults: FaultList) -> Any:
    """Return the value of JSON `text`, or `UNREADABLE` with a fault at `path` that names line and column.

    NaN and Infinity are returned as floats: whoever walks the value knows a better path for that fault.
    """
    repeated: list[str] = []

    def to_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs):
            seen: set[str] = set()
            repeated.extend(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        return value

    try:
        value = json.loads(text, object_pairs_hook=to_object)
    except json.JSONDecodeError as error:
        faults.add(path, f"not JSON, line {error.lineno}, column {error.colno}: {error.msg}")
        return UNREADABLE
    except RecursionError:
        faults.add(path, "nested too deeply to be read")
        return UNREADABLE
    except ValueError:
        faults.add(path, "contains an integer with more digits than can be read")
        return UNREADABLE
    for key in repeated:
        faults.add(path, f"the key {quoted(key)} occurs twice in one object")
    return value
