"""Makes JSON values from text or from a Struct exact, and notes what JSON cannot carry."""

import math
from typing import Any

from tradewind.scheduler.domain.fault_list import FaultList
from tradewind.scheduler.domain.paths import join_all, shown
from tradewind.server.quoting import quoted

DEEPEST = 64
"""How deep lists and objects may be nested."""

_EXACT = 2**53
_Trail = tuple["_Trail", str | int] | None
"""A path as linked pairs, so that it costs nothing until there is a fault to report."""


def exact_value(value: object, faults: FaultList, *, from_struct: bool = False) -> Any:
    """Return a copy of a JSON value in which every integral double is an integer.

    Faults are NaN and Infinity, nesting over 64 levels, text that is not Unicode and, for a value that came from a
    `google.protobuf.Struct`, whose numbers are doubles, any number that may have been rounded there (2^53 and beyond).
    A faulty part is replaced by something harmless, so that one fault does not cause others.
    """
    return _Walk(faults, from_struct).value(value, None, 0)


class _Walk:
    def __init__(self, faults: FaultList, from_struct: bool) -> None:
        self._faults = faults
        self._from_struct = from_struct

    def value(self, value: object, trail: _Trail, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(value, trail)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float):
            return self._number(value, trail)
        if isinstance(value, dict | list | tuple):
            if depth == DEEPEST:
                self._fault(trail, f"nested more than {DEEPEST} levels deep")
                return None
            if isinstance(value, dict):
                return self._object(value, trail, depth)
            return [self.value(item, (trail, index), depth + 1) for index, item in enumerate(value)]
        self._fault(trail, f"{shown(value)} is not a JSON value")
        return None

    def _object(self, value: dict[Any, Any], trail: _Trail, depth: int) -> dict[str, Any]:
        result = {}
        for key, item in value.items():
            if not isinstance(key, str):
                self._fault(trail, f"{shown(key)} is not a valid key; keys must be text")
                continue
            key = self._text(key, trail)
            result[key] = self.value(item, (trail, key), depth + 1)
        return result

    def _number(self, value: int | float, trail: _Trail) -> int | float:
        if isinstance(value, float) and not math.isfinite(value):
            self._fault(trail, "NaN, Infinity and numbers beyond 1.8e308 are not JSON; use null or text")
            return 0
        if self._from_struct and abs(value) >= _EXACT:
            self._fault(
                trail,
                f"{shown(value)} is not below 2^53, so it may have been rounded in the Struct; "
                "send the definition as weather_json",
            )
        if isinstance(value, float) and abs(value) < _EXACT and value.is_integer():
            return int(value)
        return value

    def _text(self, value: str, trail: _Trail) -> str:
        if value.isascii():
            return value
        try:
            value.encode()
        except UnicodeEncodeError:
            whole = value.encode(errors="replace").decode()
            self._fault(trail, f"{quoted(whole)} contains an unpaired surrogate, which is not valid Unicode")
            return whole
        return value

    def _fault(self, trail: _Trail, message: str) -> None:
        keys: list[str | int] = []
        while trail is not None:
            trail, key = trail
            keys.append(key)
        self._faults.add(join_all("", reversed(keys)) or "flow", message)
