"""Which flows a request names, whatever its type, and how many it may name."""

import pytest

from tradewind.api.scheduler.v1 import memory_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.scheduler.rpc.named_flows import flow_ids_in
from tradewind.server.faults import InvalidInput


def test_flows_are_found_in_every_field_that_names_some() -> None:
    assert flow_ids_in(pb2.GetFlowRequest(flow_id="f")) == ["f"]
    assert flow_ids_in(pb2.WatchFlowRequest(flow_ids=["f", "g", "f"])) == ["f", "g"]
    assert flow_ids_in(memory_pb2.GetMemoryRequest(scope=memory_pb2.MemoryScope(flow_id="f"))) == ["f"]
    assert flow_ids_in(pb2.RunFlowsRequest(items=[pb2.RunFlowItem(flow_id="f"), pb2.RunFlowItem()])) == ["f"]


def test_more_flows_than_any_handler_takes_are_refused_before_their_owners_are_read() -> None:
    items = [pb2.RunFlowItem(flow_id=str(number)) for number in range(10_001)]
    assert len(flow_ids_in(pb2.RunFlowsRequest(items=items[1:]))) == 10_000
    for request in (pb2.RunFlowsRequest(items=items), pb2.WatchFlowRequest(flow_ids=[each.flow_id for each in items])):
        with pytest.raises(InvalidInput, match="10001 items; at most 10000"):
            flow_ids_in(request)
