"""Finds the flows that a request names, whatever its type."""

from collections.abc import Sized

from google.protobuf.message import Message

from tradewind.server.faults import InvalidInput, Violation

_MAX_IDS = 10_000
"""No handler takes more ids; the gate reads the owner of each before the handler counts them."""


def flow_ids_in(request: Message) -> list[str]:
    """Return the distinct, non-empty ids in `flow_id`, `flow_ids`, `items[].flow_id` and `scope.flow_id`.

    Raises InvalidInput for too many.
    """
    found: list[str] = []
    for name in request.DESCRIPTOR.fields_by_name:
        value = getattr(request, name)
        if name == "flow_id":
            found.append(value)
        elif name == "flow_ids":
            _limit(name, value)
            found += value
        elif name == "items":
            _limit(name, value)
            found += [each.flow_id for each in value]
        elif name == "scope":
            found.append(value.flow_id)
    return [flow_id for flow_id in dict.fromkeys(found) if flow_id]


def _limit(name: str, values: Sized) -> None:
    if len(values) > _MAX_IDS:
        raise InvalidInput([Violation(name, f"{len(values)} items; at most {_MAX_IDS}: send several requests")])
