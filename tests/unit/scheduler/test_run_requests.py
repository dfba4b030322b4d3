"""How requests to run flows are remembered."""

from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.scheduler.rpc.run_requests import cycle_requests_of


async def test_every_release_tells_repeated_requests_by_the_same_digest() -> None:
    call = pb2.RunFlowRequest(flow_id="f", inputs_json='{"a":1}', request_id="r1")
    (request,), _ = await cycle_requests_of(call, [call], "")
    assert request.request is not None
    # Anything else would refuse a call that is repeated while replicas are upgraded.
    assert request.request.payload == "dd12796ef4087003085b3c1e0ae07a77"
