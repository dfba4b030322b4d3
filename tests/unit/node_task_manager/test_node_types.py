"""Which node types are offered, and which workers known, when the registry does not answer."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from tests.unit.node_task_manager.conftest import Line
from tradewind.api.registry.v1.node_type_pb2 import NodeType
from tradewind.api.registry.v1.registry_service_pb2 import ListNodeTypesResponse
from tradewind.node_task_manager.peers import node_types
from tradewind.node_task_manager.peers.node_types import LiveNodeTypes
from tradewind.node_task_manager.peers.registry import RegisteredWorkers
from tradewind.node_task_manager.use_cases.connected_worker import ConnectedWorker
from tradewind.node_task_manager.use_cases.worker_pool import WorkerPool


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


class Crowd(WorkerPool):
    """Workers too many to look at one by one."""

    def __iter__(self) -> Iterator[ConnectedWorker]:
        raise AssertionError("each worker was looked at")


async def test_offered_type_is_known_without_a_look_at_each_worker() -> None:
    """A page of 1000 waiting items asks 1000 times."""
    pool = Crowd()
    pool.add(ConnectedWorker("w1", "i1", ("noop",), 1, Line(), {0: 1}))
    types = LiveNodeTypes(pool, None)
    assert (await types.offered("noop"), await types.offered("nobody")) == (True, None)


async def test_type_that_nobody_offers_is_not_suggested_in_its_own_place() -> None:
    """A worker may have come since the registry was asked, or send heartbeats with a type that it never declared."""
    pool = WorkerPool()
    pool.add(ConnectedWorker("w1", "i1", ("noop", "nope"), 1, Line(), {0: 1}))
    types = LiveNodeTypes(pool, None)
    assert await types.hint("noop") == '; did you mean "nope"?'


async def test_failing_registry_is_not_called_again_at_once() -> None:
    channel: Any = Channel()
    channel.over.set()
    types = LiveNodeTypes(WorkerPool(), channel)
    assert [await types.offered("noop") for _ in range(3)] == [None, None, None]
    assert await types.declared("noop") is None
    assert channel.calls == 1


async def test_concurrent_lookups_share_one_registry_call() -> None:
    channel: Any = Channel()
    types = LiveNodeTypes(WorkerPool(), channel)
    waiting = [asyncio.create_task(types.offered("noop")) for _ in range(10)]
    await asyncio.sleep(0.01)
    channel.over.set()
    assert await asyncio.gather(*waiting) == [None] * 10
    assert channel.calls == 1


async def test_stale_answer_is_used_while_registry_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    channel: Any = Channel()
    channel.answer = ListNodeTypesResponse(node_types=[NodeType(type="noop", worker_ids=["w1"])])
    types = LiveNodeTypes(WorkerPool(), channel)
    assert await types.offered("noop")
    monkeypatch.setattr(node_types, "_FRESH_S", 0.0)
    channel.answer = None
    async with asyncio.timeout(1):
        assert await types.offered("noop")
    channel.over.set()


async def test_failing_registry_is_logged_once_however_much_is_asked() -> None:
    """Thousands of workers open their streams again at once when a node task manager has restarted."""
    channel: Any = Channel()
    channel.over.set()
    directory, types = RegisteredWorkers(channel), LiveNodeTypes(WorkerPool(), channel)
    with capture_logs() as logged:
        assert all(await asyncio.gather(*(directory.knows(f"w{at}") for at in range(20))))
        assert {await types.offered(f"t{at}") for at in range(20)} == {None}
    assert [(each["event"], each["what"]) for each in logged] == [
        ("registry_unavailable", "workers"),
        ("registry_unavailable", "node types"),
    ]
