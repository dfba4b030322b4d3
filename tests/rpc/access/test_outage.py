"""A server that asks an access service which cannot answer."""

import grpc
import pytest

from tests.gate_calls import call
from tests.ports import free_port
from tradewind.api.access.v1 import access_service_pb2 as pb2
from tradewind.api.access.v1.access_service_pb2_grpc import AccessServiceServicer, add_AccessServiceServicer_to_server
from tradewind.api.scheduler.v1.scheduler_service_pb2 import RunFlowRequest
from tradewind.server.access.gate import Gate
from tradewind.server.access.remote import RemoteAuthority
from tradewind.server.channels import open_channel
from tradewind.server.faults import Unavailable
from tradewind.server.interception import Context

FULL = "the store is out of memory and accepts no writes"


class WithFullStore(AccessServiceServicer):
    """Cannot look up any token."""

    async def Authorize(self, _request: pb2.AuthorizeRequest, context: Context) -> pb2.AuthorizeResponse:
        await context.abort(grpc.StatusCode.UNAVAILABLE, FULL)


async def test_caller_is_told_that_the_store_is_why_access_cannot_answer() -> None:
    port, server = free_port(), grpc.aio.server()
    add_AccessServiceServicer_to_server(WithFullStore(), server)  # type: ignore[abstract]
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    authority = RemoteAuthority(open_channel(f"127.0.0.1:{port}"))
    with pytest.raises(Unavailable, match=f"^the access service cannot answer: {FULL}, so your token is not checked"):
        await call(Gate(authority), "RunFlow", RunFlowRequest(flow_id="f"), "tw_00_" + "x" * 43)
    await authority.close()
    await server.stop(None)
