"""Maps between Protobuf and the domain: what workers say about the node types that they offer."""

from collections.abc import Iterable, Iterator

from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.node_task_manager.rpc.cache_mapping import cache_faults, cache_use
from tradewind.node_task_manager.use_cases.connected_worker import Offer
from tradewind.server.faults import Violation
from tradewind.server.identifiers import check_identifier

_LONGEST_VERSION = 128
_MAX_OUTPUTS = 256
"""As many as a declaration in the registry may name."""


def offers(node_types: Iterable[str], given: Iterable[work_pb2.OfferedType]) -> dict[str, Offer]:
    """Parse what a worker says about the node types that it offers."""
    by_type = {
        each.node_type: Offer(
            each.version, cache_use(each.cache), each.eager, frozenset(each.outputs) if each.outputs else None
        )
        for each in given
    }
    return {node_type: by_type[node_type] for node_type in node_types if node_type in by_type}


def offer_faults(path: str, given: Iterable[work_pb2.OfferedType]) -> Iterator[Violation]:
    """Yield the faults of what a worker says about its node types."""
    for at, each in enumerate(given):
        if fault := check_identifier(f"{path}[{at}].node_type", each.node_type):
            yield fault
        if len(each.version) > _LONGEST_VERSION:
            yield Violation(f"{path}[{at}].version", f"must have at most {_LONGEST_VERSION} characters")
        if each.HasField("cache"):
            yield from cache_faults(f"{path}[{at}].cache", each.cache)
        if len(each.outputs) > _MAX_OUTPUTS:
            yield Violation(f"{path}[{at}].outputs", f"at most {_MAX_OUTPUTS}, there are {len(each.outputs)}")
            continue
        for place, handle in enumerate(each.outputs):
            if fault := check_identifier(f"{path}[{at}].outputs[{place}]", handle):
                yield fault
