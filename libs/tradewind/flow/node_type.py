"""Node types, by name or by their functions."""

from typing import Protocol


class NodeType(Protocol):
    """Anything that names a node type, such as a function under `@node`."""

    @property
    def type(self) -> str:
        """The name of the node type."""
        ...


def name_of(node_type: str | NodeType) -> str:
    """Return the name of a node type. Raises TypeError when it is neither a name nor something that has one."""
    name = getattr(node_type, "type", node_type)
    if not isinstance(name, str):
        raise TypeError(f"{node_type!r} is not a node type: give its name, or a function that is decorated with @node")
    return name
