"""Maps between Protobuf and the domain: nodes that run once for each item of a list."""

from collections.abc import Iterator

from tradewind.api.node_task_manager.v1 import component_pb2, node_task_pb2
from tradewind.node_task_manager.domain.fan_out import MAX_ITEMS, MAX_PARALLEL, FanOut
from tradewind.node_task_manager.domain.item_counts import ItemCounts
from tradewind.server.faults import Violation


def fan_out(node: component_pb2.PlanNode) -> FanOut | None:
    """Parse the fan-out of a node, None when it has none."""
    if not node.HasField("fan_out"):
        return None
    given = node.fan_out
    return FanOut(
        given.handle,
        given.max_parallel or MAX_PARALLEL,
        least_count=given.min_count if given.HasField("min_count") else None,
        least_ratio=repr(given.min_ratio) if given.HasField("min_ratio") else None,
    )


def fan_out_faults(path: str, plan: component_pb2.Plan, place: int) -> Iterator[Violation]:
    """Yield the faults of a node's fan-out; `path` is that of the node."""
    given = plan.nodes[place].fan_out
    into = sum(edge.target == place and edge.target_handle == given.handle for edge in plan.edges)
    if into != 1:
        yield Violation(f"{path}.fan_out.handle", f'exactly one edge must lead into "{given.handle}", there are {into}')
    if not 0 <= given.max_parallel <= MAX_ITEMS:
        yield Violation(f"{path}.fan_out.max_parallel", f"must be 1 to {MAX_ITEMS}, is {given.max_parallel}")
    if given.HasField("min_count") and given.min_count < 0:
        yield Violation(f"{path}.fan_out.min_count", f"must not be negative, is {given.min_count}")
    # Written so that NaN is a fault, too.
    if given.HasField("min_ratio") and not 0 < given.min_ratio <= 1:
        yield Violation(f"{path}.fan_out.min_ratio", f"must be over 0 and at most 1, is {given.min_ratio:g}")


def item_counts(counts: ItemCounts | None) -> node_task_pb2.ItemCounts | None:
    """Return the item counts of a mapped node."""
    if counts is None:
        return None
    return node_task_pb2.ItemCounts(
        total=counts.total,
        need=counts.need,
        begun=counts.begun,
        completed=counts.completed,
        failed=counts.failed,
        cancelled=counts.cancelled,
    )
