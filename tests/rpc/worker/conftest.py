"""The server side of every worker in these tests, and nodes that several of them offer."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from tests.rpc.worker.engine import Engine, started_engine
from tests.waiting import until
from tradewind.worker import Context, Node, NodeStopExecution, node


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[Engine]:
    """A node task manager and registry on a free port."""
    engine = await started_engine()
    yield engine
    await engine.stop()


@node("double")
async def double(value: int = 1) -> int:
    return 2 * value


class Waiting:
    """A node that waits until the test lets it go on; it records the reasons of its stops."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.stop_reasons: list[str] = []
        self.go_on = asyncio.Event()

        @node("waits")
        async def waits(ctx: Context) -> str:
            self.begun.append(ctx.node_id)
            try:
                await self.go_on.wait()
            except NodeStopExecution as stop:
                self.stop_reasons.append(stop.reason)
                raise
            return ctx.node_id

        self.node: Node[..., Any] = waits

    async def until_begun(self, *tokens: str) -> None:
        await until(lambda: sorted(self.begun) == sorted(tokens), f"{tokens} run")


@pytest_asyncio.fixture
async def waiting() -> Waiting:
    return Waiting()
