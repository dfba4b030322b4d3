"""Filters over the payload of an event: a small, bounded part of MongoDB's query language, evaluated here.

    {"symbol": "AAPL"}                                     a field equals a value
    {"order.side": "buy", "price": {"$gt": 100}}           all fields must match; a path goes into objects
    {"status": {"$in": ["failed", "timeout"]}}             operators: $eq $ne $gt $gte $lt $lte $in $nin $exists
    {"$or": [{"price": {"$lt": 90}}, {"urgent": true}]}    $or, $and and $not combine filters

Numbers compare only with numbers, and texts only with texts; true and false are not numbers. A path that leads nowhere
matches only `$ne`, `$nin` and `{"$exists": false}`.
"""

import json
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

MAX_BYTES = 4096
MAX_DEPTH = 5
MAX_CONDITIONS = 64
MAX_LIST_VALUES = 256

Test: TypeAlias = Callable[[Any], bool]

_MISSING = object()
_COMPARISONS = {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}


class FilterFault(ValueError):
    """What is wrong with a filter, and where: `path` is, for example, `price.$gt`."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)


@dataclass(frozen=True, slots=True)
class EventFilter:
    """A filter given as JSON text; "" matches everything. Raises FilterFault."""

    text: str
    _test: Test = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_test", _compiled(self.text))

    def matches(self, payload: Mapping[str, Any]) -> bool:
        """Say whether an event's payload matches."""
        return self._test(payload)


@lru_cache(maxsize=4096)
def _compiled(text: str) -> Test:
    if not text:
        return lambda payload: True
    if len(text.encode()) > MAX_BYTES:
        raise FilterFault("", f"must have at most {MAX_BYTES} bytes, has {len(text.encode())}")
    try:
        condition = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise FilterFault("", f"is not JSON: {error}") from None
    return _Reader().conditions(condition, "", 1)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


class _Reader:
    """Turns a filter into tests, counting its conditions."""

    def __init__(self) -> None:
        self._count = 0

    def conditions(self, condition: object, path: str, depth: int) -> Test:
        if not isinstance(condition, dict):
            raise FilterFault(path, f'must be an object such as {{"symbol": "AAPL"}}, is {_type_name(condition)}')
        if depth > MAX_DEPTH:
            raise FilterFault(path, f"is nested too deeply: at most {MAX_DEPTH} levels")
        tests = tuple(self._condition(name, value, path, depth) for name, value in condition.items())
        return lambda payload: all(test(payload) for test in tests)

    def _condition(self, name: str, value: object, path: str, depth: int) -> Test:
        full_path = f"{path}.{name}" if path else name
        if name in ("$or", "$and"):
            if not isinstance(value, list) or not value:
                raise FilterFault(full_path, "must be a list of filters")
            tests = [self.conditions(each, f"{full_path}[{at}]", depth + 1) for at, each in enumerate(value)]
            combine = any if name == "$or" else all
            return lambda payload: combine(test(payload) for test in tests)
        if name == "$not":
            test = self.conditions(value, full_path, depth + 1)
            return lambda payload: not test(payload)
        if name.startswith("$"):
            raise FilterFault(full_path, "is not supported here; use $or, $and, $not, or the path of a field")
        steps = tuple(name.split("."))
        if not all(steps):
            raise FilterFault(full_path, "is not a path: write field names separated by dots")
        tests = list(self._tests(value, full_path))
        return lambda payload: _all_pass(tests, _value_at(payload, steps))

    def _tests(self, value: object, path: str) -> Iterator[Test]:
        operators = isinstance(value, dict) and any(key.startswith("$") for key in value)
        pairs = value.items() if operators and isinstance(value, dict) else [("$eq", value)]
        for name, operand in pairs:
            self._count += 1
            if self._count > MAX_CONDITIONS:
                raise FilterFault(path, f"there are too many conditions: at most {MAX_CONDITIONS}")
            yield _operator(name, operand, f"{path}.{name}" if operators else path)


def _operator(name: str, operand: Any, path: str) -> Test:
    match name:
        case "$eq" | "$ne":
            _check_plain(operand, path)
            return (lambda value: _equal(value, operand)) if name == "$eq" else lambda value: not _equal(value, operand)
        case "$in" | "$nin":
            if not isinstance(operand, list) or len(operand) > MAX_LIST_VALUES:
                raise FilterFault(path, f"must be a list of at most {MAX_LIST_VALUES} values")
            for each in operand:
                _check_plain(each, path)
            expected = name == "$in"
            return lambda value: any(_equal(value, each) for each in operand) is expected
        case "$exists":
            if not isinstance(operand, bool):
                raise FilterFault(path, "must be true or false")
            return lambda value: (value is not _MISSING) is operand
        case "$gt" | "$gte" | "$lt" | "$lte":
            if _type_name(operand) not in ("a number", "text"):
                raise FilterFault(path, f"must be a number or text, is {_type_name(operand)}")
            compare = _COMPARISONS[name]
            return lambda value: _type_name(value) == _type_name(operand) and compare(value, operand)
    raise FilterFault(path, "is not an operator; use $eq, $ne, $gt, $gte, $lt, $lte, $in, $nin or $exists")


def _check_plain(operand: object, path: str) -> None:
    if isinstance(operand, dict | list):
        raise FilterFault(path, "must be text, a number, true, false or null; name an inner field by its path")


def _all_pass(tests: list[Test], value: object) -> bool:
    return all(test(value) for test in tests)


def _value_at(payload: object, steps: tuple[str, ...]) -> object:
    for step in steps:
        if not isinstance(payload, Mapping) or step not in payload:
            return _MISSING
        payload = payload[step]
    return payload


def _equal(value: object, operand: object) -> bool:
    return _type_name(value) == _type_name(operand) and value == operand


def _type_name(value: object) -> str:
    match value:
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case None:
            return "null"
        case dict():
            return "an object"
        case list():
            return "a list"
    return "nothing"
