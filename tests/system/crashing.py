"""The whole engine in one process; its scheduler dies at a step that a test chooses, and another one takes over."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from typing import Any

from tests.system.rollback import snapshot
from tradewind.client import Client
from tradewind.scheduler.app import Scheduler
from tradewind.scheduler.settings import SchedulerSettings
from tradewind.scheduler.stores.memory import MemoryStores
from tradewind.scheduler.stores.memory.data import Data
from tradewind.server.clock import SystemClock
from tradewind.server.logs import quieten_logging
from tradewind.standalone.in_memory import InMemory
from tradewind.testing.virtual.channel import LocalChannel
from tradewind.testing.virtual.loop import VirtualLoop
from tradewind.testing.virtual.participants import VirtualClient, VirtualWorker
from tradewind.testing.virtual.patches import virtual_clock_and_randomness
from tradewind.testing.virtual.server import LocalServer
from tradewind.worker import Node

START_NS = 1_800_000_000 * 10**9

_WRITES = {
    *("register", "change_status", "raise_schedule_epoch", "remove_step", "settle", "postpone", "add", "begin"),
    *("begin_rerun", "update_many", "try_save", "forget", "create", "cancel", "save", "remove"),
}


class SchedulerProcess:
    """One scheduler's process. A step is a write that its store carried out, or an answer that it received."""

    def __init__(self, crash_at: int, on_crash: Callable[[], None]) -> None:
        self._crash_at = crash_at
        self._on_crash = on_crash
        self._steps = 0
        self.counting = False
        self.crashed = False
        self.store_unavailable = False
        self.channels: list[LocalChannel] = []

    def step(self) -> None:
        """Take a step if steps count yet; with the last step the process is gone."""
        if self.crashed or not self.counting:
            return
        self._steps += 1
        if self._steps == self._crash_at:
            self.crashed = True
            for channel in self.channels:
                channel.gate.shut()
                channel.break_off()
            self._on_crash()

    async def block_if_crashed(self) -> None:
        """Return unless the process has crashed; then never return."""
        if self.crashed:
            await asyncio.get_running_loop().create_future()


class CrashableStore:
    """Wraps any store; calls of a dead process have no effect and are never answered."""

    def __init__(self, store: Any, process: SchedulerProcess) -> None:
        self._store = store
        self._process = process

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not callable(method):
            return method

        async def call(*args: Any, **options: Any) -> Any:
            await self._process.block_if_crashed()
            if self._process.store_unavailable:
                raise ConnectionError("the store is away")
            answer = await method(*args, **options)
            if name in _WRITES:
                self._process.step()
            await self._process.block_if_crashed()
            return answer

        return call


class CrashableStores:
    """All stores of one scheduler."""

    def __init__(self, stores: MemoryStores, process: SchedulerProcess) -> None:
        self._stores = stores
        self._process = process

    def __getattr__(self, name: str) -> Any:
        return CrashableStore(getattr(self._stores, name), self._process)


class World:
    """Everything that a scenario works with."""

    def __init__(self, loop: VirtualLoop, crash_at: int) -> None:
        self._loop = loop
        self._server = LocalServer()
        self._data = Data(SystemClock())
        self._engine = InMemory(self._channel, node_task_manager_clean_seconds=600)
        self._services = self._engine.services[:-1]
        self._schedulers: list[Scheduler] = []
        self._to_client = self._channel()
        self.client: Client = VirtualClient(self._to_client)
        self.scheduler = SchedulerProcess(crash_at, self._start_successor)
        self._bind(self.scheduler)

    def snapshot(self, *, triggers: bool = True) -> Callable[[], None]:
        """Return a function that resets the stores of the scheduler and, with `triggers`, the trigger service.

        That is the effect of a failover to a replica that lagged behind. The node task manager has another store, and
        loses nothing.
        """
        return snapshot((self._data, self._engine.triggers) if triggers else (self._data,))

    def notice_loss(self) -> None:
        """Let the scheduler notice that its store was away."""
        self._schedulers[-1].store_lost()

    def _channel(self, address: str = "", *, traced: bool = True) -> Any:
        return LocalChannel(self._server, self._loop.engine)

    def _bind(self, process: SchedulerProcess) -> None:
        def channel(address: str = "", *, traced: bool = True) -> Any:
            def tap(_method: str, from_server: bool, _message: bytes) -> None:
                if from_server:
                    process.step()

            process.channels.append(LocalChannel(self._server, self._loop.engine, tap))
            return process.channels[-1]

        records = MemoryStores(
            SystemClock(), lease_ms=86_400_000, data=self._data, publishes_ends=lambda: scheduler.publishes_ends
        )
        unknown = _WRITES - {name for store in vars(records).values() for name in dir(store)}
        assert not unknown, f"no store has the methods {unknown}"
        stores: Any = CrashableStores(records, process)
        settings = SchedulerSettings(scheduler_lease_seconds=86_400, scheduler_single_replica=True)
        scheduler = Scheduler(settings, stores=stores, open_channel=channel)
        self._schedulers.append(scheduler)
        self._server.bind([*self._services, scheduler])

    def _start_successor(self) -> None:
        """Let another scheduler take the place of the dead one; clients of the dead one find their connections lost."""
        self._bind(SchedulerProcess(0, lambda: None))
        self._to_client.break_off()
        self._starting = self._loop.create_task(self._schedulers[-1].start(), context=self._loop.engine.copy())

    async def run(self, scenario: Callable[["World"], Awaitable[None]], nodes: Iterable[Node[..., Any]]) -> None:
        """Run the scenario with one worker."""
        async with AsyncExitStack() as exit_stack:

            async def start() -> None:
                for service in (*self._services, self._schedulers[0]):
                    await service.start()
                for service in self._services:
                    exit_stack.push_async_callback(service.stop)
                await exit_stack.enter_async_context(VirtualWorker(list(nodes), "w1", self._channel()))

            await self._loop.create_task(start(), context=self._loop.engine.copy())
            await exit_stack.enter_async_context(self.client)
            await scenario(self)
            # The first scheduler may be dead, and its successor has no partitions to give up when it stops.
            await self._schedulers[-1].stop()


def run_in_world(scenario: Callable[[World], Awaitable[None]], nodes: Iterable[Node[..., Any]], crash_at: int) -> bool:
    """Run a scenario in which the scheduler dies at step `crash_at`; return whether it got that far."""
    loop = VirtualLoop(START_NS)
    quieten_logging("critical")

    async def main() -> bool:
        world = World(loop, crash_at)
        await world.run(scenario, nodes)
        return world.scheduler.crashed

    with virtual_clock_and_randomness(loop, 0), asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main())
