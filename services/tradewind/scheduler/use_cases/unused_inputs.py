"""Tells whoever runs a flow of inputs that nothing takes, as a misspelt one."""

from collections.abc import Sequence

import msgspec

from tradewind.scheduler.domain.nearest_name import NearestName
from tradewind.scheduler.domain.node_types import NodeTypeCatalogue
from tradewind.scheduler.domain.paths import listed, quoted
from tradewind.scheduler.ports.peers import NodeTypes
from tradewind.scheduler.use_cases.definitions import PlannedFlow
from tradewind.server.batching import Batcher
from tradewind.server.built_in import BUILT_IN, FLOW

_MOST = 10

_names = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class UnusedInputs:
    """Goes by what live workers have declared; of a node type that none offers nothing is known, and nothing said."""

    def __init__(self, node_types: NodeTypes) -> None:
        self._node_types = node_types
        self._batcher: Batcher[frozenset[str], NodeTypeCatalogue | None] = Batcher(self._flush)

    async def __call__(self, planned: PlannedFlow, inputs_json: str) -> list[str]:
        """Return a sentence for each input of a run that no entry node takes, at most ten."""
        if FLOW.name in planned.entry_types:
            # It passes all of them on.
            return []
        # Those that are built in take no inputs of a run.
        declared_types = planned.entry_types - BUILT_IN.keys()
        catalogue = await self._batcher.submit(declared_types)
        taken: set[str] = {"outcome"} if planned.shape.handlers else set()
        for node_type in declared_types:
            declared = catalogue.declared(node_type) if catalogue is not None else None
            if declared is None:
                return []
            taken.update(declared.inputs)
        names = sorted(taken)
        nearest = NearestName(names)
        otherwise = f"; they take {listed(names)}" if names else "; they take none"
        unused = [name for name in _names(inputs_json) if name not in taken][:_MOST]
        return [f"no entry node takes the input {quoted(name)}{nearest.hint(name, otherwise)}" for name in unused]

    async def _flush(self, wanted: list[frozenset[str]]) -> Sequence[NodeTypeCatalogue | None]:
        return [await self._node_types.catalogue(frozenset().union(*wanted))] * len(wanted)
