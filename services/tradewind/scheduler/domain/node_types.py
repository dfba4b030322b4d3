"""What the scheduler needs to know of the node types that live workers have declared."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class InputDeclaration:
    """An input handle: whether it takes several edges, and whether the node cannot run without a value for it."""

    gather: bool = False
    required: bool = False


class NodeTypeDeclaration(Protocol):
    """What one node type takes and gives."""

    @property
    def inputs(self) -> Mapping[str, InputDeclaration]:
        """Its input handles by name."""
        ...

    @property
    def outputs(self) -> AbstractSet[str]:
        """The names of its output handles."""
        ...

    @property
    def config_keys(self) -> Collection[str]:
        """The keys that its config may have; none where it may have others."""
        ...

    def config_faults(self, config: Mapping[str, Any]) -> Iterable[tuple[Sequence[str | int], str]]:
        """Return what is wrong with a config, in a stable order: keys that lead to the place within it, and a message.

        No keys mean the config as a whole. Faults within `{"$secret": ...}` may be told: they are left out.
        """
        ...


class NodeTypeCatalogue(Protocol):
    """The node types that live workers offer, as far as the flow at hand names them."""

    def declared(self, node_type: str) -> NodeTypeDeclaration | None:
        """Return the declaration of a type, or None when no live worker offers it."""
        ...

    def hint(self, node_type: str) -> str:
        """Return what to say of the type that is meant instead of one that nobody offers, "" when none is near."""
        ...
