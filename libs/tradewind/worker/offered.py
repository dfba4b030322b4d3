"""The nodes that a worker offers: their types, where they run, and how many node tasks it holds."""

import math
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

from tradewind.flow.values import Duration, seconds_in
from tradewind.worker.errors import LONGEST_WAIT, NodeDefinitionError, WorkerError
from tradewind.worker.nodes import AnyNode, Node
from tradewind.worker.processes.targets import Target, locate

CAPACITY = 100
"""The default for the most node tasks that a worker with nodes on the event loop holds."""


def as_list(nodes: Iterable[AnyNode] | AnyNode) -> list[AnyNode]:
    """Return one node, or several, as a list. `by_type` checks what is in it."""
    if isinstance(nodes, str) or not isinstance(nodes, Iterable):
        return [nodes]
    return list(nodes)


def by_type(nodes: Sequence[AnyNode]) -> dict[str, AnyNode]:
    """Return nodes by their types. Raises NodeDefinitionError for what is not a node, and for two of one type."""
    found: dict[str, AnyNode] = {}
    for each in nodes:
        if not isinstance(each, Node):
            raise NodeDefinitionError(f"{each!r} is not a node: decorate the function with @node(...)")
        other = found.setdefault(each.type, each)
        if other is not each:
            raise NodeDefinitionError(f'two nodes have the type "{each.type}": {other!r} and {each!r}')
    if not found:
        raise WorkerError("a worker needs at least one node: Worker([my_node])")
    return found


def targets_of(nodes: Iterable[AnyNode]) -> dict[str, Target]:
    """Return where processes find the nodes that run in them, by type."""
    return {node.type: locate(node) for node in nodes if node.process}


def default_capacity(nodes: Sequence[AnyNode], threads: int, processes: int) -> int:
    """Return how many node tasks to hold: one that waits inside the worker counts as started, so its timeout runs."""
    in_worker = [node for node in nodes if not (node.process and processes)]
    if any(node.is_async for node in in_worker):
        return CAPACITY
    return (threads if in_worker else 0) + (processes if len(in_worker) < len(nodes) else 0)


def check_number(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Raise ValueError unless the argument `name` is a whole number from `least` to `most`."""
    bounds = f"at least {least}" if most is None else f"{least} to {most}"
    if not isinstance(value, Integral):
        raise ValueError(f"{name} must be a whole number, {bounds}, is {value!r}")
    if not least <= int(value) <= (math.inf if most is None else most):
        raise ValueError(f"{name} must be {bounds}, is {value}")


def checked_seconds(name: str, value: Duration) -> float:
    """Return the argument `name`, a length of time, in seconds. Raises ValueError when it is invalid."""
    try:
        seconds = seconds_in(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from None
    if not 0 <= seconds <= LONGEST_WAIT.total_seconds():  # NaN is outside, too
        raise ValueError(f"{name} must be from 0 to 365 days, is {value!r}")
    return seconds
