"""The services, a worker and a client in one process under a clock of its own."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from tradewind.client import Client
from tradewind.standalone.in_memory import services_in_memory
from tradewind.testing.virtual.channel import LocalChannel
from tradewind.testing.virtual.loop import VirtualLoop
from tradewind.testing.virtual.people import VirtualClient, VirtualWorker
from tradewind.testing.virtual.server import LocalServer
from tradewind.testing.virtual.surroundings import virtual_surroundings
from tradewind.worker import Node

Result = TypeVar("Result")

START = datetime(2026, 1, 1, tzinfo=UTC)


class VirtualStack:
    """What a simulation has: a client, and time."""

    def __init__(self, loop: VirtualLoop, client: Client) -> None:
        self._loop = loop
        self.client = client

    @property
    def now(self) -> datetime:
        """The time here."""
        since = timedelta(microseconds=(self._loop.start_ns + self._loop.now_ns) // 1000)
        return datetime.fromtimestamp(0, UTC) + since

    async def run_for(self, **duration: float) -> None:
        """Let time pass: `await stack.run_for(days=30)`, as `timedelta` takes it."""
        await asyncio.sleep(timedelta(**duration).total_seconds())


def simulate(
    main: Callable[[VirtualStack], Awaitable[Result]],
    nodes: Iterable[Node[..., Any]],
    *,
    start: datetime = START,
    seed: int = 0,
) -> Result:
    loop = VirtualLoop(round(start.timestamp() * 1000) * 1_000_000)

    async def run() -> Result:
        async with _stack(loop, list(nodes)) as stack:
            return await main(stack)

    with virtual_surroundings(loop, seed), asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(run())


@asynccontextmanager
async def _stack(loop: VirtualLoop, nodes: list[Node[..., Any]]) -> AsyncIterator[VirtualStack]:
    server: LocalServer | None = None
    channels: list[LocalChannel] = []

    class Late:
        async def serve(self, *a):
            return await server.serve(*a)

    late = Late()

    def open_channel(address: str, *, traced: bool = True):
        return LocalChannel(late)

    services = services_in_memory(open_channel)
    server = LocalServer(services)
    async with AsyncExitStack() as last_to_first:
        for service in services:
            last_to_first.push_async_callback(service.stop)
            await service.start()
        worker = await last_to_first.enter_async_context(VirtualWorker(nodes, LocalChannel(late)))
        client = await last_to_first.enter_async_context(VirtualClient(LocalChannel(late)))
        yield VirtualStack(loop, client)
