"""Finds inputs of a run that no node takes, such as misspelt ones."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter

import msgspec

from tradewind.scheduler.domain.node_types import NodeTypeCatalogue
from tradewind.scheduler.ports.peers import NodeTypes
from tradewind.scheduler.use_cases.definitions import PlannedFlow
from tradewind.server.batching import Batcher
from tradewind.server.built_in import BUILT_IN, FLOW
from tradewind.server.nearest_name import NearestName
from tradewind.server.quoting import quoted

_MOST = 10
_MAX_OF_BULK = 100

_names = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class UnusedInputs:
    """Goes by the declarations of live workers; if none offers the type of an entry node, it says nothing."""

    def __init__(self, node_types: NodeTypes) -> None:
        self._node_types = node_types
        self._batcher: Batcher[frozenset[str], NodeTypeCatalogue | None] = Batcher(self._flush)

    async def __call__(self, planned: PlannedFlow, inputs_json: str) -> list[str]:
        """Return a sentence for each input of a run that no entry node takes, up to ten."""
        if not inputs_json:
            return []
        return _warnings(planned, _names(inputs_json), await self._batcher.submit(_declared_types(planned)))

    async def of_many(self, runs: Iterable[tuple[PlannedFlow, str]]) -> Iterator[tuple[int, list[str]]]:
        """Return the indexes of up to a hundred runs that have such inputs, with the sentences.

        Of runs of one revision whose inputs have the same names, only the first is examined.
        """
        first: dict[tuple[int, frozenset[str]], tuple[int, PlannedFlow, Iterable[str]]] = {}
        for place, (planned, inputs_json) in enumerate(runs):
            if inputs_json:
                names = _names(inputs_json)
                first.setdefault((id(planned), frozenset(names)), (place, planned, names))
        if not first:
            return iter(())
        wanted = (_declared_types(planned) for _, planned, _ in first.values())
        catalogue = await self._batcher.submit(frozenset().union(*wanted))
        warnings = ((place, _warnings(planned, names, catalogue)) for place, planned, names in first.values())
        return islice(filter(itemgetter(1), warnings), _MAX_OF_BULK)

    async def _flush(self, wanted: list[frozenset[str]]) -> Sequence[NodeTypeCatalogue | None]:
        return [await self._node_types.catalogue(frozenset().union(*wanted))] * len(wanted)


def _declared_types(planned: PlannedFlow) -> frozenset[str]:
    # Built-in types take no inputs of a run.
    return planned.entry_types.difference(BUILT_IN)


def _warnings(planned: PlannedFlow, given: Iterable[str], catalogue: NodeTypeCatalogue | None) -> list[str]:
    if FLOW.name in planned.entry_types:
        # A node of this type passes on all inputs.
        return []
    accepted: set[str] = {"outcome"} if planned.shape.handlers else set()
    for node_type in _declared_types(planned):
        declared = catalogue.declared(node_type) if catalogue is not None else None
        if declared is None:
            return []
        accepted.update(declared.inputs)
    unused = [name for name in given if name not in accepted][:_MOST]
    if not unused:
        return []
    nearest = NearestName(accepted)
    return [f"no entry node takes the input {quoted(name)}{nearest.hint_or_all(name, 'they take')}" for name in unused]
