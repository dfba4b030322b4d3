"""Names the flow that a caller with a misspelt id most likely meant."""

from tradewind.scheduler.ports.flows import FlowRecords
from tradewind.scheduler.use_cases.faults import flow_not_found
from tradewind.server.access.identity import current_identity, is_restricted
from tradewind.server.faults import NotFound
from tradewind.server.nearest_name import NearestName

_MOST = 200


async def no_such_flow(flows: FlowRecords, flow_id: str) -> NotFound:
    """Return the error for a flow that does not exist, with the most similar id that the caller may see."""
    return flow_not_found(flow_id, await similar_flow(flows, flow_id))


async def similar_flow(flows: FlowRecords, flow_id: str) -> str:
    """Return `; did you mean "name"?` with the most similar id that the caller may see, "" when none is near.

    Of many flows, it reads the first two hundred only, and at two hundred from the first half of `flow_id` on. The id
    itself may be among them, if the store has lost only the record of the flow.
    """
    ids = await flows.list_ids("", _MOST)
    if len(ids) == _MOST:
        ids += await flows.list_ids(max(ids[-1], flow_id[: len(flow_id) // 2]), _MOST)
    identity = current_identity()
    if identity is not None and is_restricted():
        owners = await flows.owners(ids)
        ids = [each for each, owner in zip(ids, owners, strict=True) if owner == identity.user_id]
    return NearestName(each for each in ids if each != flow_id).hint(flow_id)
