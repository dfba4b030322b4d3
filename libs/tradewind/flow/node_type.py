"""Node types, by name or by their functions."""

from collections.abc import Collection
from typing import Any, Protocol, runtime_checkable

from tradewind.flow.errors import FlowError
from tradewind.server.nearest_name import NearestName


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


def check_config(declared: DeclaredNodeType, config: Any, path: str) -> None:
    """Raise FlowError for a key that a node type does not know."""
    if isinstance(config, dict) and not declared.takes_any_config:
        for key in config:
            if key not in declared.inputs:
                raise FlowError(f"unknown key{NearestName(declared.inputs).hint_or_all(key)}", f"{path}.{key}")


def check_handle(declared: DeclaredNodeType, kind: str, name: str, known: Collection[str], path: str) -> None:
    """Raise FlowError for a handle that a node type does not have."""
    if name not in known:
        hint = NearestName(known).hint_or_all(name)
        raise FlowError(f'node type "{declared.type}" has no {kind} handle "{name}"{hint}', path)
