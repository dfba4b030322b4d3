"""Checks the nodes of a flow that run once for each item of a list."""

from collections import Counter
from collections.abc import Iterable, Mapping

from tradewind.scheduler.domain.fan_out import ERRORS
from tradewind.scheduler.domain.fault_list import FaultList
from tradewind.scheduler.domain.paths import join
from tradewind.scheduler.domain.weather_nodes import EdgeDraft, NodeDraft
from tradewind.server.nearest_name import NearestName
from tradewind.server.quoting import listed, quoted


def check_mapped_nodes(nodes: Iterable[NodeDraft], edges: Iterable[EdgeDraft], faults: FaultList) -> None:
    """Check that exactly one edge brings each mapped node its list."""
    mapped = [(node, node.mapped_input) for node in nodes if node.mapped_input is not None]
    if not mapped:
        return
    incoming = Counter((edge.target, edge.target_handle) for edge in edges)
    for node, handle in mapped:
        path = join(node.path, "map")
        count = incoming[node.node_id, handle]
        if not count:
            names = sorted(name for target, name in incoming if target == node.node_id and name is not None)
            others = f"edges lead into {listed(names)}" if names else "a list known beforehand comes from a node too"
            hint = NearestName(names).hint(handle, f"; {others}")
            faults.add(path, f"no edge leads into input {quoted(handle)}, whose list the node is to run over{hint}")
        elif count > 1:
            faults.add(path, f"{count} edges lead into input {quoted(handle)}; exactly one must bring the list")


def warn_of_errors_handle(
    nodes: Iterable[NodeDraft], outputs: Mapping[str, Iterable[str]], warnings: FaultList
) -> None:
    """Warn of mapped nodes whose type declares an output named like the one that mapping adds; `outputs` is by type."""
    for node in nodes:
        if node.mapped_input is not None and ERRORS in outputs.get(node.node_type or "", ()):
            message = f"output {quoted(ERRORS)} of a mapped node names the items that did not complete"
            warnings.add(join(node.path, "map"), f"{message}; what its type emits there is dropped")
