"""What the scheduler needs to know about the node types that live workers have declared."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tradewind.server.json_types import ANY, JsonTypes


@dataclass(frozen=True, slots=True)
class InputDeclaration:
    """An input handle: whether it takes several edges, whether the node cannot run without a value for it, and which
    types the value of an edge may have."""

    gather: bool = False
    required: bool = False
    types: JsonTypes = ANY


class NodeTypeDeclaration(Protocol):
    """The inputs, outputs and config of one node type."""

    @property
    def inputs(self) -> Mapping[str, InputDeclaration]:
        """Its input handles by name."""
        ...

    @property
    def outputs(self) -> Mapping[str, JsonTypes]:
        """Which types the values of its output handles have, by name."""
        ...

    @property
    def config_keys(self) -> Collection[str]:
        """The keys that its config may have; empty when other keys are allowed too."""
        ...

    def config_faults(self, config: Mapping[str, Any]) -> Iterable[tuple[Sequence[str | int], str]]:
        """Return the faults of a config, in a stable order: the keys that lead to the place, and a message.

        No keys means the config as a whole. Faults within `{"$secret": ...}` may be included: the caller drops them.
        """
        ...


class NodeTypeCatalogue(Protocol):
    """The node types that live workers offer, limited to those that the flow at hand names."""

    def declared(self, node_type: str) -> NodeTypeDeclaration | None:
        """Return the declaration of a type, or None when no live worker offers it."""
        ...

    def hint(self, node_type: str) -> str:
        """Return a hint at the offered type that was probably meant by an unknown one, "" when none is similar."""
        ...
