"""A node of a flow and its handles, to be joined by edges with `>>`."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, overload

from tradewind.flow.errors import FlowError

DEFAULT_OUTPUT = "output"
"""The output handle of a node type that names none, such as one made by `@node`."""


class Handle:
    """One handle of a node: an output on the left of `>>`, an input on the right."""

    def __init__(self, node: "Node", name: str) -> None:
        self.node = node
        self.name = name

    def __repr__(self) -> str:
        return f'{self.node.id}["{self.name}"]'

    @overload
    def __rshift__(self, target: "Handle") -> "Node": ...

    @overload
    def __rshift__(self, target: "Iterable[Handle]") -> "tuple[Node, ...]": ...

    def __rshift__(self, target: "Handle | Iterable[Handle]") -> "Node | tuple[Node, ...]":
        """Add an edge to an input handle, or to each of several; return the target nodes, to continue from."""
        if isinstance(target, Node):
            raise FlowError(f'which handle of "{target.id}" receives? Write {self!r} >> {target.id}["<handle>"]')
        if isinstance(target, Handle):
            self.node._join(self, target)
            return target.node
        if isinstance(target, str):
            raise FlowError(f'"{target}" is text: write {self!r} >> flow["<node>"]["<handle>"]')
        return tuple(self >> each for each in target)

    def __rrshift__(self, sources: "Iterable[Source]") -> "Node":
        """Add an edge from each of several sources to this input handle."""
        if isinstance(sources, str):
            raise FlowError(f'"{sources}" is text: write flow["{sources}"] >> {self!r}')
        for source in sources:
            source >> self
        return self.node


class Node:
    """A node of a flow; `node["handle"]` names one of its handles, `node >> ...` begins at the handle `output`."""

    def __init__(self, weather: dict[str, Any], join: Callable[[Handle, Handle], None]) -> None:
        """`weather` is the node in Weather Syntax; `join(source, target)` adds an edge to the flow."""
        self._weather = weather
        self._join = join

    def __repr__(self) -> str:
        return f"<node {self.id}: {self.type}>"

    @property
    def id(self) -> str:
        """The id of the node in its flow."""
        return str(self._weather.get("id", ""))

    @property
    def type(self) -> str:
        """The name of its node type."""
        return str(self._weather.get("type", ""))

    def __getitem__(self, handle: str) -> Handle:
        return Handle(self, handle)

    @overload
    def __rshift__(self, target: Handle) -> "Node": ...

    @overload
    def __rshift__(self, target: Iterable[Handle]) -> "tuple[Node, ...]": ...

    def __rshift__(self, target: Handle | Iterable[Handle]) -> "Node | tuple[Node, ...]":
        """The same as `node["output"] >> target`."""
        return self[DEFAULT_OUTPUT] >> target

    # Otherwise Python would iterate over anything that can be indexed, by 0, 1, 2 and so on forever.
    __iter__ = None

    if not TYPE_CHECKING:  # A type checker would take any source and any attribute for granted.

        def __rrshift__(self, sources: object) -> NoReturn:
            raise FlowError(f'which handle of "{self.id}" receives? Write [...] >> {self.id}["<handle>"]')

        def __getattr__(self, name: str) -> NoReturn:
            hint = "" if name.startswith("_") else f'; if it is one of its handles, write {self.id}["{name}"]'
            raise AttributeError(f'a node has no attribute "{name}"{hint}', name=name, obj=self)


Source: TypeAlias = Node | Handle
