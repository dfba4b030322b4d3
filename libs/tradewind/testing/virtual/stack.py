"""Runs the services, workers and a client in one process under a virtual clock."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from unittest.mock import patch

from tradewind.client import Client
from tradewind.server.logs import quieten_logging
from tradewind.standalone.in_memory import InMemory
from tradewind.testing.environment import no_settings
from tradewind.testing.virtual.channel import LocalChannel
from tradewind.testing.virtual.history import History
from tradewind.testing.virtual.loop import VirtualLoop
from tradewind.testing.virtual.participants import VirtualClient, VirtualWorker
from tradewind.testing.virtual.patches import virtual_clock_and_randomness
from tradewind.testing.virtual.server import LocalServer
from tradewind.worker import Node
from tradewind.worker.offered import as_list, by_type

Result = TypeVar("Result")

START = datetime(2026, 1, 1, tzinfo=UTC)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_SETTINGS = {
    # Whatever only the clock renews or repeats must outlast the longest leap of the loop.
    "scheduler_lease_seconds": 86_400,
    "scheduler_lead_seconds": 0,
    "registry_heartbeat_seconds": 12 * 3600,
    "registry_time_to_live_seconds": 2 * 86_400,
    "registry_retention_seconds": 7 * 86_400,
    # Comparing finds the deletion of a flow that a node waits for. A cycle that waits for a month compares often.
    "scheduler_reconcile_seconds": 480,
    # Nothing is lost in one process, so these safety nets need to be checked rarely, or never.
    "doctor_seconds": 0,
    "scheduler_poll_seconds": 86_400,
    "scheduler_listeners_seconds": 86_400,
    "trigger_poll_seconds": 86_400,
    "registry_sweep_seconds": 86_400,
    "trigger_sweep_seconds": 86_400,
    "scheduler_tidy_seconds": 86_400,
    "node_task_manager_clean_seconds": 600,
    "node_task_manager_poll_seconds": 86_400,
    "node_task_manager_called_seconds": 86_400,
}


class VirtualStack:
    """What a simulation works with: a client, the time, and the workers' connections to the servers."""

    def __init__(self, loop: VirtualLoop, client: Client, history: History, workers: Sequence[VirtualWorker]) -> None:
        self._loop = loop
        self._workers = {worker.worker_id: worker for worker in workers}
        self._openings: dict[str, asyncio.TimerHandle] = {}
        self.client = client
        self.history = history
        """What has happened so far."""

    @property
    def now(self) -> datetime:
        """The simulation's time, UTC."""
        return _EPOCH + timedelta(microseconds=self._loop.epoch_ns // 1000)

    async def run_for(
        self,
        *,
        weeks: float = 0,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> None:
        """Let time pass: `await stack.run_for(days=30)`. Raises ValueError for a negative time."""
        length = timedelta(
            weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds
        ).total_seconds()
        if length < 0:
            raise ValueError(f"time cannot run backwards: {length:g} s")
        await asyncio.sleep(length)

    def silence_worker(self, seconds: float, worker_id: str = "worker-1") -> None:
        """Cut a worker off for this many seconds: until then, nothing it sends arrives, and it receives nothing.

        It keeps working meanwhile; after the node task manager's lease of 30 s, its tasks are given to other workers.
        Raises KeyError when no worker has this id.
        """
        gate = self._workers[worker_id].channel.gate
        gate.shut()
        opening = self._loop.call_later(seconds, gate.open)
        before = self._openings.get(worker_id, opening)
        self._openings[worker_id] = max(before, opening)
        if before is not opening:
            min(before, opening).cancel()


def simulate(
    main: Callable[[VirtualStack], Awaitable[Result]],
    nodes: Iterable[Node[..., Any]] | Node[..., Any],
    *,
    workers: int = 1,
    start: datetime = START,
    seed: int = 0,
) -> Result:
    """Run `await main(stack)` with the whole engine under a virtual clock, and return its result.

    All services work over stores in memory, and `workers` workers, `worker-1` and so on, offer `nodes`; no socket, no
    thread, no store process. It is `start` when `main` begins. Time stands still while anything is left to do and then
    jumps to the next timer, so a month takes a second or two. All ids and jitter come from `seed`: two runs with the
    same seed have the same history, byte by byte, whatever PYTHONHASHSEED is.

    An async node takes time by `asyncio.sleep`; plain functions and nodes with `process=True` run on the loop, take no
    time, and cannot use the cycle's or flow's memory. `time.time` and `random` follow the simulation, while
    `datetime.now` tells the machine's time: use `stack.now`, or the context's `planned_time`. Code that waits for
    anything outside the process, such as a socket, finds that hours pass meanwhile. Of the TRADEWIND_* variables, only
    secrets are visible. Call it where no event loop runs, such as in a plain test function. Raises what `main` raises,
    ValueError for a `start` without a time zone, NodeDefinitionError for what is not a node, and RuntimeError where an
    event loop runs.
    """
    if asyncio._get_running_loop() is not None:
        raise RuntimeError(
            "simulate() runs an event loop of its own: call it where none runs, such as in a plain test function"
        )
    if start.tzinfo is None:
        raise ValueError(f"start has no time zone: {start}; use datetime(..., tzinfo=UTC)")
    offered = as_list(nodes)
    if workers:
        by_type(offered)
    loop = VirtualLoop((start - _EPOCH) // timedelta(microseconds=1) * 1000)
    quieten_logging("error")

    async def run() -> Result:
        async with _stack(loop, offered, workers) as stack:
            return await main(stack)

    with no_settings(), virtual_clock_and_randomness(loop, seed), asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(run())


@asynccontextmanager
async def _stack(loop: VirtualLoop, nodes: list[Node[..., Any]], workers: int) -> AsyncIterator[VirtualStack]:
    server, history = LocalServer(), History(loop.now_ms)

    def channel(address: str = "", *, traced: bool = True) -> Any:
        return LocalChannel(server, loop.engine, history.tap)

    engine = InMemory(channel, loop.now_ms, **_SETTINGS)
    server.bind(engine.services)

    def channel_of_node(client: Client, address: str, security: object) -> Any:
        if asyncio.get_running_loop() is not loop:
            raise RuntimeError("a SyncClient cannot be used in a simulation: make the node async, and use Client")
        return channel()

    await engine.follow_cycles(history.record)
    loop.next_deadline_ns = engine.next_deadline_ns
    virtual_workers = [VirtualWorker(nodes, f"worker-{at + 1}", channel()) for at in range(workers)]
    async with AsyncExitStack() as cleanup:
        cleanup.enter_context(patch.object(Client, "_open_channel", channel_of_node))

        async def start() -> None:
            for service in engine.services:
                cleanup.push_async_callback(service.stop)
                await service.start()
            for worker in virtual_workers:
                await cleanup.enter_async_context(worker)

        await loop.create_task(start(), context=loop.engine.copy())
        client = await cleanup.enter_async_context(VirtualClient(channel()))
        try:
            yield VirtualStack(loop, client, history, virtual_workers)
        finally:
            for worker in virtual_workers:
                worker.channel.gate.open()
