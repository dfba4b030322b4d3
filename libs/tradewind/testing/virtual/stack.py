"""The services, a worker and a client in one process under a clock of its own."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from tradewind.client import Client
from tradewind.standalone.in_memory import InMemory
from tradewind.testing.virtual.channel import LocalChannel
from tradewind.testing.virtual.loop import VirtualLoop
from tradewind.testing.virtual.people import VirtualClient, VirtualWorker
from tradewind.testing.virtual.server import LocalServer
from tradewind.testing.virtual.surroundings import virtual_surroundings
from tradewind.worker import Node

Result = TypeVar("Result")

START = datetime(2026, 1, 1, tzinfo=UTC)


SETTINGS = {
    "registry_heartbeat_seconds": 3600,
    "registry_time_to_live_seconds": 86400,
    "registry_retention_seconds": 86400,
    "registry_sweep_seconds": 3600,
    "scheduler_lease_seconds": 86400,
}


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
    server = LocalServer()
    engine = InMemory(lambda address, *, traced=True: LocalChannel(server, loop.engine), **SETTINGS)
    server.bind(engine.services)
    loop.next_deadline_ns = engine.next_deadline_ns
    async with AsyncExitStack() as last_to_first:
        worker = VirtualWorker(nodes, LocalChannel(server, loop.engine))

        async def start() -> None:
            for service in engine.services:
                last_to_first.push_async_callback(service.stop)
                await service.start()
            await worker.__aenter__()

        await loop.create_task(start(), context=loop.engine.copy())
        last_to_first.push_async_exit(worker)
        client = await last_to_first.enter_async_context(VirtualClient(LocalChannel(server, loop.engine)))
        yield VirtualStack(loop, client)
