"""How long a node waits for its variables while no scheduler answers."""

import asyncio
from typing import Any

import grpc

from tradewind.testing.virtual.loop import VirtualLoop
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
