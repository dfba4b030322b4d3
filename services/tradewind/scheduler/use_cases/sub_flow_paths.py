"""Checks which flows a definition runs: that none of them runs the flow itself, and that they are registered."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tradewind.scheduler.domain.flow_definition import FlowDefinition
from tradewind.scheduler.domain.paths import quoted
from tradewind.scheduler.ports.flows import FlowRecords
from tradewind.server.built_in import FLOW
from tradewind.server.faults import Violation

_MOST_FLOWS = 1000
"""So many flows are looked at; beyond that the depth of cycles at run time is what ends a chain."""


@dataclass(frozen=True, slots=True)
class PathsFound:
    """What is wrong with the flows that a definition runs, and what is worth a warning."""

    faults: tuple[Violation, ...] = ()
    warnings: tuple[Violation, ...] = ()


class SubFlowPaths:
    """Follows nodes of type `flow` through the definitions on record."""

    def __init__(self, flows: FlowRecords) -> None:
        self._flows = flows

    async def __call__(self, flow_id: str, definition: FlowDefinition) -> PathsFound:
        """Return what is found of a definition that is to be that of a flow."""
        named = {
            place: str(json.loads(node.config_json)["flow_id"])
            for place, node in enumerate(definition.nodes)
            if node.node_type == FLOW.name
        }
        if not named:
            return PathsFound()
        above, unknown = await self._above(flow_id, list(dict.fromkeys(named.values())))
        faults: list[Violation] = []
        warnings: list[Violation] = []
        for place, target in named.items():
            path = f"nodes[{place}].config.flow_id"
            if (found := path_back(flow_id, target, above)) is not None:
                way = " -> ".join(found)
                faults.append(Violation(path, f"a flow may not run itself, neither directly nor through others: {way}"))
            elif target in unknown:
                message = f"no flow {quoted(target)} is registered; the node fails until there is one"
                warnings.append(Violation(path, message))
        return PathsFound(tuple(faults), tuple(warnings))

    async def _above(self, flow_id: str, first: Sequence[str]) -> tuple[Mapping[str, Sequence[str]], set[str]]:
        """Return which flows each flow runs, as far as can be reached from the first, and those that are unknown."""
        runs: dict[str, Sequence[str]] = {}
        unknown: set[str] = set()
        level = [each for each in first if each != flow_id]
        while level and len(runs) < _MOST_FLOWS:
            records = await self._flows.find(level)
            for each, record in zip(level, records, strict=True):
                runs[each] = () if record is None else _flows_run_by(record.config_json)
                if record is None:
                    unknown.add(each)
            level = sorted({below for each in level for below in runs[each]} - runs.keys() - {flow_id})
        return runs, unknown


def _flows_run_by(config_json: str) -> Sequence[str]:
    if f'"{FLOW.name}"' not in config_json:
        return ()
    nodes = [node for node in json.loads(config_json)["nodes"] if node["type"] == FLOW.name]
    # One of before the type was built in may say nothing.
    named = [str(node.get("config", {}).get("flow_id", "")) for node in nodes]
    return tuple(dict.fromkeys(filter(None, named)))


def path_back(flow_id: str, target: str, edges: Mapping[str, Sequence[str]]) -> list[str] | None:
    """Return the shortest way along edges from a flow through `target` back to it, None when there is none."""
    ways = [[flow_id, target]]
    seen = {target}
    for way in ways:
        if way[-1] == flow_id:
            return way
        for below in edges.get(way[-1], ()):
            if below not in seen or below == flow_id:
                seen.add(below)
                ways.append([*way, below])
    return None
