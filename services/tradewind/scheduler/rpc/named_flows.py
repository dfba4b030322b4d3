"""Finds the flows that a request names, whatever its type."""

from google.protobuf.message import Message


def flow_ids_in(request: Message) -> list[str]:
    """Return the distinct, non-empty ids in `flow_id`, `flow_ids`, `items[].flow_id` and `scope.flow_id`."""
    found: list[str] = []
    for name in request.DESCRIPTOR.fields_by_name:
        value = getattr(request, name)
        if name == "flow_id":
            found.append(value)
        elif name == "flow_ids":
            found += value
        elif name == "items":
            found += [each.flow_id for each in value]
        elif name == "scope":
            found.append(value.flow_id)
    return [flow_id for flow_id in dict.fromkeys(found) if flow_id]
