"""Which node types are offered, when the registry does not answer."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from tradewind.api.registry.v1.node_type_pb2 import NodeType
from tradewind.api.registry.v1.registry_service_pb2 import ListNodeTypesResponse
from tradewind.node_task_manager.peers import node_types
from tradewind.node_task_manager.peers.node_types import LiveNodeTypes


class Channel:
    """Leads to a registry that hangs unless it has an answer: each call fails when its time is over."""

    def __init__(self) -> None:
        self.calls = 0
        self.answer: ListNodeTypesResponse | None = None
        self.over = asyncio.Event()

    def unary_unary(self, *_: Any, **__: Any) -> Callable[..., Any]:
        async def call(*_: Any, **__: Any) -> ListNodeTypesResponse:
            self.calls += 1
            if self.answer is not None:
                return self.answer
            await self.over.wait()
            raise grpc.aio.AioRpcError(grpc.StatusCode.DEADLINE_EXCEEDED, grpc.aio.Metadata(), grpc.aio.Metadata())

        return call

    unary_stream = unary_unary


async def test_failing_registry_is_not_called_again_at_once() -> None:
    channel: Any = Channel()
    channel.over.set()
    types = LiveNodeTypes((), channel)
    assert [await types.offered("noop") for _ in range(3)] == [None, None, None]
    assert await types.declared("noop") is None
    assert channel.calls == 1


async def test_concurrent_lookups_share_one_registry_call() -> None:
    channel: Any = Channel()
    types = LiveNodeTypes((), channel)
    waiting = [asyncio.create_task(types.offered("noop")) for _ in range(10)]
    await asyncio.sleep(0.01)
    channel.over.set()
    assert await asyncio.gather(*waiting) == [None] * 10
    assert channel.calls == 1


async def test_stale_answer_is_used_while_registry_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    channel: Any = Channel()
    channel.answer = ListNodeTypesResponse(node_types=[NodeType(type="noop", worker_ids=["w1"])])
    types = LiveNodeTypes((), channel)
    assert await types.offered("noop")
    monkeypatch.setattr(node_types, "_FRESH_S", 0.0)
    channel.answer = None
    async with asyncio.timeout(1):
        assert await types.offered("noop")
    channel.over.set()
