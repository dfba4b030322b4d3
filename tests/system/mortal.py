"""The whole engine in one process; its scheduler dies at a point that a test chooses, and another one takes over."""

import asyncio
import copyreg
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from copy import deepcopy
from types import MappingProxyType
from typing import Any

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

# `deepcopy` cannot copy the mappings in chain states.
copyreg.pickle(MappingProxyType, lambda proxy: (MappingProxyType, (dict(proxy),)))

START_NS = 1_800_000_000 * 10**9

_WRITES = {
    *("register", "change_status", "raise_schedule_epoch", "remove_step", "settle", "postpone", "add", "begin"),
    *("begin_rerun", "try_update", "update_many", "try_save", "forget", "create", "cancel", "save", "told"),
}


class Life:
    """The life of one scheduler's process. A step is a write that its store carried out, or an answer that it got."""

    def __init__(self, dies_at: int, buried: Callable[[], None]) -> None:
        self._dies_at = dies_at
        self._buried = buried
        self._steps = 0
        self.counting = False
        self.dead = False
        self.store_away = False
        self.channels: list[LocalChannel] = []

    def step(self) -> None:
        """Take a step if steps count yet; with the last step the process is gone."""
        if self.dead or not self.counting:
            return
        self._steps += 1
        if self._steps == self._dies_at:
            self.dead = True
            for channel in self.channels:
                channel.gate.shut()
                channel.break_off()
            self._buried()

    async def lasts(self) -> None:
        """Return if the process lives; never return otherwise."""
        if self.dead:
            await asyncio.get_running_loop().create_future()


class MortalStore:
    """Wraps any store; calls of a dead process have no effect and are never answered."""

    def __init__(self, store: Any, life: Life) -> None:
        self._store = store
        self._life = life

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not callable(method):
            return method

        async def call(*args: Any, **options: Any) -> Any:
            await self._life.lasts()
            if self._life.store_away:
                raise ConnectionError("the store is away")
            answer = await method(*args, **options)
            if name in _WRITES:
                self._life.step()
            await self._life.lasts()
            return answer

        return call


class MortalStores:
    """All stores of one scheduler."""

    def __init__(self, stores: MemoryStores, life: Life) -> None:
        self._stores = stores
        self._life = life

    def __getattr__(self, name: str) -> Any:
        return MortalStore(getattr(self._stores, name), self._life)


class World:
    """Everything that a scenario works with."""

    def __init__(self, loop: VirtualLoop, dies_at: int) -> None:
        self._loop = loop
        self._server = LocalServer()
        self._data = Data(SystemClock())
        self._engine = InMemory(self._channel, node_task_manager_clean_seconds=600)
        self._services = self._engine.services[:-1]
        self._schedulers: list[Scheduler] = []
        self._to_client = self._channel()
        self.client: Client = VirtualClient(self._to_client)
        self.life = Life(dies_at, self._succeed)
        self._bind(self.life)

    def remember(self) -> Callable[[], None]:
        """Return a function that makes the stores of the scheduler and the trigger service forget what came after this.

        That is the effect of a failover to a replica that lagged behind. The node task manager has another store, and
        forgets nothing.
        """

        def records() -> dict[str, dict[Any, Any]]:
            held = {name: held for name, held in vars(self._data).items() if isinstance(held, dict)}
            return {**held, "listeners": {}, "lanes": self._engine.triggers.lanes}

        kept = deepcopy(records())

        def forget() -> None:
            for name, held in records().items():
                held.clear()
                held.update(kept[name])

        return forget

    def _channel(self, address: str = "", *, traced: bool = True) -> Any:
        return LocalChannel(self._server, self._loop.engine)

    def _bind(self, life: Life) -> None:
        def channel(address: str = "", *, traced: bool = True) -> Any:
            def tap(_method: str, from_server: bool, _message: bytes) -> None:
                if from_server:
                    life.step()

            life.channels.append(LocalChannel(self._server, self._loop.engine, tap))
            return life.channels[-1]

        records = MemoryStores(
            SystemClock(), lease_ms=86_400_000, data=self._data, publishes_ends=lambda: scheduler.publishes_ends
        )
        stores: Any = MortalStores(records, life)
        settings = SchedulerSettings(scheduler_lease_seconds=86_400, scheduler_sole=True)
        scheduler = Scheduler(settings, stores=stores, open_channel=channel)
        self._schedulers.append(scheduler)
        self._server.bind([*self._services, scheduler])

    def _succeed(self) -> None:
        """Let another scheduler take the place of the dead one; clients of the dead one find their connections lost."""
        self._bind(Life(0, lambda: None))
        self._to_client.break_off()
        self._starting = self._loop.create_task(self._schedulers[-1].start(), context=self._loop.engine.copy())

    async def live(self, scenario: Callable[["World"], Awaitable[None]], nodes: Iterable[Node[..., Any]]) -> None:
        """Run the scenario with one worker."""
        async with AsyncExitStack() as last_to_first:

            async def start() -> None:
                for service in (*self._services, self._schedulers[0]):
                    await service.start()
                for service in self._services:
                    last_to_first.push_async_callback(service.stop)
                await last_to_first.enter_async_context(VirtualWorker(list(nodes), "w1", self._channel()))

            await self._loop.create_task(start(), context=self._loop.engine.copy())
            await last_to_first.enter_async_context(self.client)
            await scenario(self)
            # The first scheduler may be dead, and its successor has no partitions to give up when it stops.
            await self._schedulers[-1].stop()


def run_in_world(scenario: Callable[[World], Awaitable[None]], nodes: Iterable[Node[..., Any]], dies_at: int) -> bool:
    """Run a scenario in which the scheduler dies at step `dies_at`; return whether it got that far."""
    loop = VirtualLoop(START_NS)
    quieten_logging("critical")

    async def main() -> bool:
        world = World(loop, dies_at)
        await world.live(scenario, nodes)
        return world.life.dead

    with virtual_clock_and_randomness(loop, 0), asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main())
