"""JSON that is nested too deeply."""

import grpc
from google.protobuf.message import Message

from tests.rpc.scheduler.conftest import Client
from tests.rpc.scheduler.errors import refused
from tradewind.api.scheduler.v1 import memory_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2

DEEP = '{"x":' + "[" * 501 + "]" * 501 + "}"


async def test_deeply_nested_json_is_refused_naming_its_field(scheduler: Client) -> None:
    await scheduler.register()
    scope = memory_pb2.MemoryScope(flow_id="f", cycle=0)
    calls: list[tuple[str, Message, str]] = [
        ("RunFlow", pb2.RunFlowRequest(flow_id="f", inputs_json=DEEP), "inputs_json"),
        ("UpdateMemory", memory_pb2.UpdateMemoryRequest(scope=scope, set_json=DEEP), "set_json"),
        ("UpdateMemory", memory_pb2.UpdateMemoryRequest(scope=scope, result_json=DEEP), "result_json"),
    ]
    for name, request, path in calls:
        refusal = await refused(
            getattr(scheduler.stub, name)(request), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT"
        )
        assert [where for where, _ in refusal.violations] == [path], name
