"""What a node is told when the scheduler does not answer as asked, and how long it waits."""

import asyncio
from typing import Any

import grpc
import pytest

from tradewind.testing.virtual.loop import VirtualLoop
from tradewind.worker import MemoryFault
from tradewind.worker.scheduler_link import SchedulerLink

OUTAGE_S = 45.0


class Channel:
    """A channel to a scheduler that is away for a while."""

    def unary_unary(self, *_: Any, **__: Any) -> Any:
        async def call(_request: bytes, timeout: float) -> bytes:
            if asyncio.get_running_loop().time() < self.back:
                nothing = grpc.aio.Metadata()
                raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, "away")
            return b"here"

        self.back = asyncio.get_running_loop().time() + OUTAGE_S
        return call


def test_memory_call_waits_out_scheduler_outage() -> None:
    async def ask() -> bytes:
        channel: Any = Channel()
        return await asyncio.wrap_future(SchedulerLink(channel).ask("GetMemory", b""))

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(0)) as runner:
        assert runner.run(ask()) == b"here"


class FullChannel:
    """A channel on which gRPC refuses what is sent as too long."""

    def unary_unary(self, *_: Any, **__: Any) -> Any:
        async def call(_request: bytes, timeout: float) -> bytes:
            nothing, details = grpc.aio.Metadata(), "SERVER: Received message larger than max (5000050 vs. 4259840)"
            raise grpc.aio.AioRpcError(grpc.StatusCode.RESOURCE_EXHAUSTED, nothing, nothing, details)

        return call


async def test_change_that_is_longer_than_any_message_is_too_large() -> None:
    channel: Any = FullChannel()
    with pytest.raises(MemoryFault, match="a change of 5 bytes") as caught:
        await asyncio.wrap_future(SchedulerLink(channel).ask("UpdateMemory", b"value"))
    assert caught.value.reason == "TOO_LARGE"
