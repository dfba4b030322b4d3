"""The nodes that a worker offers: by type, where they run, and how many of their node tasks it holds."""

from collections.abc import Iterable, Sequence
from typing import Any

from tradewind.worker.errors import NodeDefinitionError, WorkerError
from tradewind.worker.nodes import Node
from tradewind.worker.processes.targets import Target, locate

CAPACITY = 100
"""Node tasks that a worker with nodes on the event loop holds at most, unless told otherwise."""


def by_type(nodes: Sequence[Node[..., Any]]) -> dict[str, Node[..., Any]]:
    """Return nodes by their types. Raises NodeDefinitionError for what is no node, and for two of one type."""
    found: dict[str, Node[..., Any]] = {}
    for each in nodes:
        if not isinstance(each, Node):
            raise NodeDefinitionError(f"{each!r} is not a node: decorate the function with @node(...)")
        other = found.setdefault(each.type, each)
        if other is not each:
            raise NodeDefinitionError(f'two nodes have the type "{each.type}": {other!r} and {each!r}')
    if not found:
        raise WorkerError("a worker needs at least one node: Worker([my_node])")
    return found


def targets_of(nodes: Iterable[Node[..., Any]]) -> dict[str, Target]:
    """Return where processes find those of the nodes that run in them, by type."""
    return {node.type: locate(node) for node in nodes if node.process}


def room_for(nodes: Sequence[Node[..., Any]], threads: int, processes: int) -> int:
    """Return how many node tasks to hold: one that waits in the worker has begun for everybody else; its time runs."""
    here = [node for node in nodes if not (node.process and processes)]
    if any(node.is_async for node in here):
        return CAPACITY
    return threads * bool(here) + processes * (len(here) < len(nodes))
