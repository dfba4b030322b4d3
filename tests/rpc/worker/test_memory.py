"""How nodes use variables while schedulers come and go."""

from typing import Any

import grpc
import pytest

from tests.rpc.worker.engine import Engine
from tradewind.api.scheduler.v1 import memory_pb2
from tradewind.api.scheduler.v1.scheduler_service_pb2_grpc import (
    SchedulerServiceServicer,
    add_SchedulerServiceServicer_to_server,
)
from tradewind.worker import Context, Worker, node


@node("count")
async def count(ctx: Context) -> int:
    value: int = await ctx.flow_memory.update("count", lambda held: held + 1, 0)
    return value


class Scheduler(SchedulerServiceServicer):
    """Ends the first call of each method without answering."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code
        self._methods_ended: set[str] = set()

    async def GetMemory(self, request: memory_pb2.GetMemoryRequest, context: Any) -> memory_pb2.GetMemoryResponse:
        await self._end_first("GetMemory", context)
        return memory_pb2.GetMemoryResponse(memory=memory_pb2.Memory(variables_json="{}"))

    async def UpdateMemory(
        self, request: memory_pb2.UpdateMemoryRequest, context: Any
    ) -> memory_pb2.UpdateMemoryResponse:
        await self._end_first("UpdateMemory", context)
        return memory_pb2.UpdateMemoryResponse()

    async def _end_first(self, method: str, context: Any) -> None:
        if method not in self._methods_ended:
            self._methods_ended.add(method)
            await context.abort(self._code)


AWAY = [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED]


@pytest.mark.parametrize("code", AWAY)
async def test_unanswered_memory_call_is_repeated(engine: Engine, code: grpc.StatusCode) -> None:
    """A stopping server ends calls that it has not begun with CANCELLED; a hanging one lets the deadline pass."""
    server = grpc.aio.server()
    add_SchedulerServiceServicer_to_server(Scheduler(code), server)  # type: ignore[abstract]
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        async with Worker([count], address=engine.address, scheduler_address=address):
            session = await engine.session()
            session.assign("count", "t1", flow_id="f")
            await session.until_completed("t1")
    finally:
        await server.stop(None)
