"""Node types, by name or by their functions."""

from typing import Protocol, runtime_checkable


class NodeType(Protocol):
    """Anything that names a node type, such as a function under `@node`."""

    @property
    def type(self) -> str:
        """The name of the node type."""
        ...


@runtime_checkable
class DeclaredNodeType(NodeType, Protocol):
    """A node type that says which handles it has, such as a function under `@node`."""

    outputs: tuple[str, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The input handles, which are keys of the config as well."""
        ...

    @property
    def takes_any_config(self) -> bool:
        """Whether the config may have other keys."""
        ...


def name_of(node_type: str | NodeType) -> str:
    """Return the name of a node type. Raises TypeError when it is neither a name nor something that has one."""
    name = getattr(node_type, "type", node_type)
    if not isinstance(name, str):
        raise TypeError(f"{node_type!r} is not a node type: give its name, or a function that is decorated with @node")
    return name
