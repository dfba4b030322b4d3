"""Checks of requests that need no more than the request."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.identifiers import check_identifier

Word = TypeVar("Word")


def identifiers(**named: str) -> None:
    """Raise InvalidInput unless every field holds an identifier."""
    faults = [check_identifier(path, value) for path, value in named.items()]
    if any(faults):
        raise InvalidInput([fault for fault in faults if fault is not None])


def text(path: str, value: str, longest: int) -> str:
    """Return `value`. Raises InvalidInput when it has more than `longest` characters."""
    if len(value) > longest:
        raise InvalidInput([Violation(path, f"must have at most {longest} characters, has {len(value)}")])
    return value


def chosen(path: str, numbers: Iterable[Any], words: Mapping[Any, Word]) -> frozenset[Word]:
    """Return what enum values stand for. Raises InvalidInput for one that stands for nothing."""
    faults = [
        Violation(f"{path}[{place}]", f"{number} is no known value")
        for place, number in enumerate(numbers)
        if number not in words
    ]
    if faults:
        raise InvalidInput(faults)
    return frozenset(words[number] for number in numbers)
