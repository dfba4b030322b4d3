"""Checks of requests that need nothing but the request."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.identifiers import require_identifiers
from tradewind.server.paging import page_position, page_size_of

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
Position = TypeVar("Position")
Meaning = TypeVar("Meaning")

_MAX_FAULTS = 100
_MAX_CHOSEN = 1000
_ITEM_DIGITS = 9


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


def require(faults: Sequence[Violation]) -> None:
    """Raise InvalidInput when there are faults, with the first 100 of them and the number of the others."""
    if not faults:
        return
    hidden = sum(each.count for each in faults[_MAX_FAULTS:])
    rest = [Violation("", f"and {hidden} more", hidden)] if hidden else []
    raise InvalidInput([*faults[:_MAX_FAULTS], *rest])


def flow_page(request: Any, shape: type[Position]) -> tuple[Position | None, int]:
    """Return where a page of a flow's list begins, None for the first page, and the most entries that it may have.

    Raises InvalidInput with every fault of `flow_id`, `page_token` and `page_size`.
    """
    _, position, limit = every(
        lambda: require_identifiers(flow_id=request.flow_id),
        lambda: page_position(request.page_token, shape),
        lambda: page_size_of(request.page_size),
    )
    return position, limit


def actor_and_reason(request: Any, reason_field: str = "reason", **named: str) -> tuple[str, str]:
    """Return who makes a request, "user" if it does not say, and why; `reason_field` is the name of that field.

    Raises InvalidInput with every fault of these fields, of `flow_id`, and of the identifiers in `named`.
    """
    _, by, reason = every(
        lambda: require_identifiers(flow_id=request.flow_id, **named),
        lambda: text("by", request.by, 128),
        lambda: text(reason_field, getattr(request, reason_field), 1024),
    )
    return by or "user", reason


def node_or_item(node_id: str) -> None:
    """Raise InvalidInput unless this is `<node>` or `<node>:<item>`."""
    node, colon, item = node_id.partition(":")
    if colon and not (item.isascii() and item.isdecimal() and len(item) <= _ITEM_DIGITS):
        message = f'"{node_id}" is not <node>:<item>, where <item> is an index into the list, from 0'
        raise InvalidInput([Violation("node_id", message)])
    require_identifiers(node_id=node)


def text(path: str, value: str, longest: int) -> str:
    """Return `value`. Raises InvalidInput when it has more than `longest` characters."""
    if len(value) > longest:
        raise InvalidInput([Violation(path, f"must have at most {longest} characters, has {len(value)}")])
    return value


def chosen(path: str, numbers: Sequence[Any], meanings: Mapping[Any, Meaning]) -> frozenset[Meaning]:
    """Return the meanings of enum values. Raises InvalidInput for values that are not known, and for too many."""
    if len(numbers) > _MAX_CHOSEN:
        raise InvalidInput([Violation(path, f"at most {_MAX_CHOSEN} at once, there are {len(numbers)}")])
    faults = [
        Violation(f"{path}[{place}]", f"{number} is not a known value")
        for place, number in enumerate(numbers)
        if number not in meanings
    ]
    require(faults)
    return frozenset(meanings[number] for number in numbers)
