"""Checks the nodes of a flow that run on failure or last: they must be components of their own."""

from collections.abc import Collection, Sequence

from tradewind.scheduler.domain.fault_list import FaultList
from tradewind.scheduler.domain.paths import join
from tradewind.scheduler.domain.weather import FlowDraft
from tradewind.server.nearest_name import NearestName
from tradewind.server.quoting import quoted


def check_handlers(
    draft: FlowDraft, nodes: Collection[str], joined: Sequence[tuple[str, tuple[str, str]]], faults: FaultList
) -> None:
    """Note every fault of `on_failure` and `finally`; `joined` are the edges between known nodes, by their paths."""
    if not draft.on_failure and not draft.last:
        return
    role: dict[str, str] = {}
    for name, node_ids in (("on_failure", draft.on_failure), ("finally", draft.last)):
        names = NearestName(nodes)
        for place, node_id in enumerate(node_ids):
            path = join(name, place)
            if node_id not in nodes:
                faults.add(path, f"no node {quoted(node_id)}{names.hint(node_id)}")
            elif role.setdefault(node_id, name) != name:
                faults.add(
                    path, f"{quoted(node_id)} is already in on_failure; a node runs on failure or last, not both"
                )
    if nodes and role.keys() >= set(nodes):
        faults.add("nodes", "all of them are in on_failure or finally; at least one must be in neither")
    for path, (source, target) in joined:
        if role.get(source) != role.get(target):
            ends = [f"{quoted(each)} ({role.get(each, 'neither')})" for each in (source, target)]
            faults.add(
                path,
                f"joins {ends[0]} and {ends[1]}; nodes that run on failure or last get the outcome in "
                'their parameter "outcome", not over edges',
            )
