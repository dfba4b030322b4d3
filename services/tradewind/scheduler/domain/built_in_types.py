"""Checks flows against the built-in node types, which need no worker."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tradewind.scheduler.domain.fault_list import FaultList
from tradewind.scheduler.domain.node_types import InputDeclaration
from tradewind.scheduler.domain.paths import join
from tradewind.scheduler.domain.weather_nodes import NodeDraft
from tradewind.server.built_in import BUILT_IN, BuiltIn
from tradewind.server.json_types import ANY, JsonTypes
from tradewind.server.quoting import quoted

_FOR_WORKERS = ("retry", "concurrency", "rate", "cache")


class _AnyInput(Mapping[str, InputDeclaration]):
    """Input handles that take any name, and several edges each; iteration yields none."""

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
        """Return the declaration of a built-in type, None for a type that workers run."""
        return cls(BUILT_IN[node_type]) if node_type in BUILT_IN else None

    @property
    def inputs(self) -> Mapping[str, InputDeclaration]:
        """Its input handles; none of them is required."""
        if self.built_in.any_input:
            return _AnyInput()
        return {handle.name: InputDeclaration(gather=handle.gather) for handle in self.built_in.inputs}

    @property
    def outputs(self) -> Mapping[str, JsonTypes]:
        """Its output handles, whose values may be of any type."""
        return dict.fromkeys(self.built_in.outputs, ANY)

    @property
    def config_keys(self) -> Sequence[str]:
        """Always empty: the texts of its config faults name the keys."""
        return ()

    def config_faults(self, config: Mapping[str, Any]) -> Iterable[tuple[Sequence[str | int], str]]:
        """Return the faults of a config, each with the keys that lead to it."""
        return self.built_in.faults(config)


def warn_of_ignored_fields(nodes: Iterable[NodeDraft], warnings: FaultList) -> None:
    """Warn of fields that only take effect on a worker, at nodes that go to none."""
    for node in nodes:
        if node.node_type not in BUILT_IN or node.definition is None:
            continue
        for name in _FOR_WORKERS:
            if name == "retry" and BUILT_IN[node.node_type].retries:
                continue
            if getattr(node.definition, name) is not None:
                message = f"does nothing: nodes of the built-in type {quoted(node.node_type or '')} go to no worker"
                warnings.add(join(node.path, name), message)
