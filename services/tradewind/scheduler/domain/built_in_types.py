"""Node types that need no worker, as flows are checked against them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tradewind.scheduler.domain.fault_list import FaultList
from tradewind.scheduler.domain.node_types import InputDeclaration
from tradewind.scheduler.domain.paths import join
from tradewind.scheduler.domain.weather_nodes import NodeDraft
from tradewind.server.built_in import BUILT_IN, BuiltIn
from tradewind.server.quoting import quoted

_FOR_WORKERS = ("retry", "concurrency", "rate", "cache")


class _AnyInput(Mapping[str, InputDeclaration]):
    """Takes any input handle, and several edges into each; it names none."""

    def __getitem__(self, name: str) -> InputDeclaration:
        return InputDeclaration(gather=True)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class BuiltInDeclaration:
    """Implements NodeTypeDeclaration."""

    built_in: BuiltIn

    @classmethod
    def of(cls, node_type: str) -> "BuiltInDeclaration | None":
        """Return the declaration of a type, None for one that workers run."""
        return cls(BUILT_IN[node_type]) if node_type in BUILT_IN else None

    @property
    def inputs(self) -> Mapping[str, InputDeclaration]:
        """Its input handles; none must be fed."""
        if self.built_in.any_input:
            return _AnyInput()
        return {handle.name: InputDeclaration(gather=handle.gather) for handle in self.built_in.inputs}

    @property
    def outputs(self) -> frozenset[str]:
        """The names of its output handles."""
        return frozenset(self.built_in.outputs)

    @property
    def config_keys(self) -> Sequence[str]:
        """None are told: its faults name what there is."""
        return ()

    def config_faults(self, config: Mapping[str, Any]) -> Iterable[tuple[Sequence[str | int], str]]:
        """Return what is wrong with a config, with the keys that lead there."""
        return self.built_in.faults(config)


def warn_of_ignored_fields(nodes: Iterable[NodeDraft], warnings: FaultList) -> None:
    """Tell of what only a worker could do, at nodes that go to none."""
    for node in nodes:
        if node.node_type not in BUILT_IN or node.definition is None:
            continue
        for name in _FOR_WORKERS:
            if name == "retry" and BUILT_IN[node.node_type].retries:
                continue
            if getattr(node.definition, name) is not None:
                message = f"does nothing: nodes of the built-in type {quoted(node.node_type or '')} go to no worker"
                warnings.add(join(node.path, name), message)
