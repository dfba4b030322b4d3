"""Finds paths from flow to flow, by their records: along the flows that each runs, or those that begin it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tradewind.scheduler.domain.flow_record import DEFAULT_USER, FlowRecord
from tradewind.scheduler.ports.flows import FlowRecords
from tradewind.scheduler.use_cases.whole_flows import pieces
from tradewind.server.faults import Violation
from tradewind.server.large_work import LARGE_BYTES, in_thread_if

MAX_FLOWS = 1000
"""The most flows to look at; a longer chain of flows that run others is ended at run time, by the depth of cycles."""


@dataclass(frozen=True, slots=True)
class PathsFound:
    """The faults and warnings about the flows that a definition names."""

    faults: tuple[Violation, ...] = ()
    warnings: tuple[Violation, ...] = ()


@dataclass(frozen=True, slots=True)
class ReachedFlows:
    """The edges of the flows that were reached; those that are not registered, or are another user's, have none."""

    edges: Mapping[str, Sequence[str]]
    unknown: Collection[str]
    of_others: Collection[str]


async def edges_from(
    flows: FlowRecords, flow_id: str, user_id: str, named: Sequence[str], next_of: Callable[[FlowRecord], Sequence[str]]
) -> ReachedFlows:
    """Return the flows that are reached from `flow_id`, which is to be the user's ("" for its owner) and name `named`.

    The flows of other users are not followed: what they name is nobody else's business, and has no effect on this flow.
    """
    owner = user_id or (await flows.owners([flow_id]))[0] or DEFAULT_USER
    edges: dict[str, Sequence[str]] = {flow_id: named}
    unknown: set[str] = set()
    of_others: set[str] = set()
    level = [each for each in dict.fromkeys(named) if each != flow_id]
    while level and len(edges) <= MAX_FLOWS:
        for some in pieces(level):
            for each, record in zip(some, await flows.find(some), strict=True):
                edges[each] = ()
                if record is None:
                    unknown.add(each)
                elif record.user_id != owner:
                    of_others.add(each)
                else:
                    edges[each] = await in_thread_if(len(record.config_json) > LARGE_BYTES, next_of, record)
        level = sorted({following for each in level for following in edges[each]} - edges.keys())
    return ReachedFlows(edges, unknown, of_others)


def path_back(flow_id: str, target: str, edges: Mapping[str, Sequence[str]]) -> list[str] | None:
    """Return the shortest path along edges from a flow through `target` back to it, None when there is none."""
    paths = [[flow_id, target]]
    seen = {target}
    for path in paths:
        if path[-1] == flow_id:
            return path
        for following in edges.get(path[-1], ()):
            if following not in seen or following == flow_id:
                seen.add(following)
                paths.append([*path, following])
    return None
