"""Ways from flow to flow, along what is on record of each: the flows that it runs, or those that begin it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tradewind.scheduler.domain.flow_record import FlowRecord
from tradewind.scheduler.ports.flows import FlowRecords
from tradewind.server.faults import Violation

MOST_FLOWS = 1000
"""So many flows are looked at; of those that run others, the depth of cycles at run time ends a chain beyond that."""


@dataclass(frozen=True, slots=True)
class PathsFound:
    """What is wrong with the flows that a definition names, and what is worth a warning."""

    faults: tuple[Violation, ...] = ()
    warnings: tuple[Violation, ...] = ()


async def edges_from(
    flows: FlowRecords, flow_id: str, named: Sequence[str], next_of: Callable[[FlowRecord], Sequence[str]]
) -> tuple[Mapping[str, Sequence[str]], set[str]]:
    """Return what follows on each flow, as far as is reached from one that is to name these, and those unknown."""
    edges: dict[str, Sequence[str]] = {flow_id: named}
    unknown: set[str] = set()
    level = [each for each in dict.fromkeys(named) if each != flow_id]
    while level and len(edges) <= MOST_FLOWS:
        for each, record in zip(level, await flows.find(level), strict=True):
            edges[each] = () if record is None else next_of(record)
            if record is None:
                unknown.add(each)
        level = sorted({following for each in level for following in edges[each]} - edges.keys())
    return edges, unknown


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
