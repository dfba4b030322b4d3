"""Which node types are offered, where the registry does not say."""

from collections.abc import Callable
from typing import Any

import grpc

from tradewind.node_task_manager.peers.node_types import LiveNodeTypes


class Channel:
    """Leads to a registry that hangs: every call fails when its time is over."""

    def __init__(self) -> None:
        self.calls = 0

    def unary_unary(self, *_: Any, **__: Any) -> Callable[..., Any]:
        async def call(*_: Any, **__: Any) -> None:
            self.calls += 1
            raise grpc.aio.AioRpcError(grpc.StatusCode.DEADLINE_EXCEEDED, grpc.aio.Metadata(), grpc.aio.Metadata())

        return call

    unary_stream = unary_unary


async def test_a_registry_that_hangs_is_not_waited_for_again_and_again() -> None:
    channel: Any = Channel()
    types = LiveNodeTypes((), channel)
    assert [await types.offered("noop") for _ in range(3)] == [None, None, None]
    assert await types.declared("noop") is None
    assert channel.calls == 1
