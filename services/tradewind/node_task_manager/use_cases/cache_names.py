"""The name under which the result of a node task is found again in a cache."""

from collections.abc import Iterable
from decimal import Decimal

import msgspec

from tradewind.node_task_manager.domain.caching import CacheUse, Entry, entry_of
from tradewind.node_task_manager.ports.workers import Ready

# Numbers stay as they are written: if a worker in another language can tell two of them apart, the inputs differ.
_decode = msgspec.json.Decoder(float_hook=Decimal).decode
_encode = msgspec.json.Encoder(order="sorted", decimal_format="number").encode


def name_of(ready: Ready, use: CacheUse, version: str) -> Entry:
    """Return the name of a node task's result. Secrets count by name: here they are only references."""
    owner = use.scope.owner(ready.assignment.user_id, ready.run.flow_id)
    return entry_of(use, owner, ready.node.node_type, version, () if use.key else _depends_on(ready))


def size_of(ready: Ready) -> int:
    """Return the approximate number of bytes that its name depends on."""
    values = sum(len(value) for _, group in ready.inputs for value in group)
    return values + len(ready.node.config_json) + len(ready.assignment.run_inputs)


def _depends_on(ready: Ready) -> Iterable[str]:
    yield _canonical(ready.node.config_json or "{}")
    yield _canonical(ready.assignment.run_inputs)
    for handle, values in sorted(ready.inputs):
        yield handle
        yield str(len(values))
        yield from map(_canonical, values)


def _canonical(text: str) -> str:
    """Return JSON text in a form that ignores white space and the order of fields in objects."""
    try:
        return _encode(_decode(text)).decode() if text else ""
    except (ValueError, RecursionError):
        return text
