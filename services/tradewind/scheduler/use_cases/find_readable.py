"""Reads many flows of which some may be unreadable."""

from collections.abc import Sequence

from tradewind.scheduler.domain.flow_record import FlowRecord
from tradewind.scheduler.ports.flows import FlowRecords
from tradewind.server.faults import Unreadable


async def find_readable(
    flows: FlowRecords, flow_ids: Sequence[str]
) -> tuple[dict[str, FlowRecord | None], dict[str, Unreadable]]:
    """Return the flows that can be read, None for those that are not there, and the errors of the others."""
    try:
        return dict(zip(flow_ids, await flows.find(flow_ids), strict=True)), {}
    except Unreadable as error:
        if len(flow_ids) == 1:
            return {}, {flow_ids[0]: error}
    found: dict[str, FlowRecord | None] = {}
    unreadable: dict[str, Unreadable] = {}
    middle = len(flow_ids) // 2
    for half in (flow_ids[:middle], flow_ids[middle:]):
        some, broken = await find_readable(flows, half)
        found |= some
        unreadable |= broken
    return found, unreadable
