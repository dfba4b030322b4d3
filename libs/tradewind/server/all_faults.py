"""Gathers the faults that several checks of one request find."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, overload

from tradewind.server.faults import InvalidInput, Violation

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")

_MAX_FAULTS = 100


@overload
def every(a: Callable[[], A], b: Callable[[], B], /) -> tuple[A, B]: ...
@overload
def every(a: Callable[[], A], b: Callable[[], B], c: Callable[[], C], /) -> tuple[A, B, C]: ...
@overload
def every(a: Callable[[], A], b: Callable[[], B], c: Callable[[], C], d: Callable[[], D], /) -> tuple[A, B, C, D]: ...
@overload
def every(
    a: Callable[[], A], b: Callable[[], B], c: Callable[[], C], d: Callable[[], D], e: Callable[[], E], /
) -> tuple[A, B, C, D, E]: ...
def every(*checks: Callable[[], Any]) -> tuple[Any, ...]:
    """Return the results of all checks. Raises InvalidInput with the faults of all of them."""
    found: list[Any] = []
    faults: list[Violation] = []
    for check in checks:
        try:
            found.append(check())
        except InvalidInput as error:
            faults += error.violations
    require(faults)
    return tuple(found)


def require(faults: Iterable[Violation | None]) -> None:
    """Raise InvalidInput when there are faults, with the first 100 of them and the number of the others."""
    found = [fault for fault in faults if fault is not None]
    if not found:
        return
    hidden = sum(each.count for each in found[_MAX_FAULTS:])
    rest = [Violation("", f"and {hidden} more", hidden)] if hidden else []
    raise InvalidInput([*found[:_MAX_FAULTS], *rest])
