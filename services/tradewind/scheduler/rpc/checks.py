"""Checks of requests that need nothing but the request."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from tradewind.server.all_faults import every, require
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.identifiers import require_identifiers

Meaning = TypeVar("Meaning")

_MAX_CHOSEN = 1000
_ITEM_DIGITS = 9


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
