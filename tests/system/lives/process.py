"""The process of one replica, which may crash or freeze, and its view of stores that outlive it."""

import asyncio
import inspect
import random
from collections.abc import Callable
from typing import Any

from redis import exceptions

from tradewind.testing.virtual.channel import LocalChannel
from tradewind.testing.virtual.loop import VirtualLoop

MOST_CALLS = 10_000
"""How many calls of stores may happen before time goes on. A loop that never waits makes more."""


class StoreLost(exceptions.ConnectionError, ConnectionError):
    """A lost connection to the store, as redis-py reports it."""


class Disturbances:
    """What disturbs the calls of all stores: a share of them fails, and each takes up to `lag` seconds."""

    def __init__(self, loop: VirtualLoop, draw: random.Random) -> None:
        self._loop = loop
        self._draw = draw
        self.fail_rate = 0.0
        self.lag = 0.0
        self.stuck: asyncio.Future[str] = loop.create_future()
        """Gets a sentence when a service calls its store for ever while no time passes."""
        self._instant, self._calls = 0, 0
        self.gaps: list[tuple[Process, Callable[[], None]]] = []
        """What processes do when their connections to the store were lost for a moment."""

    def tell_gaps(self, service: str) -> None:
        """Let processes of a service, "" for all, notice that their store was restarted; frozen ones notice later."""
        for process, on_gap in self.gaps:
            if service in ("", process.service):
                process.do(on_gap)

    async def delay(self) -> None:
        """Take some time."""
        if self.lag:
            await asyncio.sleep(self._draw.random() * self.lag)

    async def count(self, name: str) -> None:
        """Count a call; never return when there are too many."""
        if self._instant != self._loop.now_ns:
            self._instant, self._calls = self._loop.now_ns, 0
        self._calls += 1
        if self._calls > MOST_CALLS:
            if not self.stuck.done():
                self.stuck.set_result(f"{MOST_CALLS} calls of stores without any time passing; the last was {name}")
            await self._loop.create_future()

    def fail(self, when: str) -> None:
        """Raise StoreLost for a share of the calls."""
        if self.fail_rate and self._draw.random() < self.fail_rate:
            raise StoreLost(f"the store was lost {when}")


class Process:
    """The process of a replica of `service`."""

    def __init__(self, service: str) -> None:
        self.service = service
        self.crashed = False
        self.channels: list[LocalChannel] = []
        self._running = asyncio.Event()
        self._running.set()
        self._later: list[Callable[[], None]] = []

    @property
    def runs(self) -> bool:
        """Whether it neither is frozen nor has crashed."""
        return not self.crashed and self._running.is_set()

    def crash(self) -> None:
        """End: nothing it does has an effect any more."""
        self.crashed = True
        for channel in self.channels:
            channel.gate.shut()
            channel.break_off()

    def freeze(self) -> None:
        """Do nothing from now on, as a process without CPU."""
        self._running.clear()
        for channel in self.channels:
            channel.gate.shut()

    def thaw(self) -> None:
        """Go on after a freeze."""
        if not self.crashed:
            self._running.set()
            for channel in self.channels:
                channel.gate.open()
            while self._later:
                self._later.pop(0)()

    def do(self, work: Callable[[], None]) -> None:
        """Do something now, or once it runs again."""
        if self.runs:
            work()
        elif not self.crashed:
            self._later.append(work)

    async def wait_until_runs(self) -> None:
        """Return as soon as it runs; never when it has crashed."""
        while not self.runs:
            if self.crashed:
                await asyncio.get_running_loop().create_future()
            await self._running.wait()


class DisturbedStore:
    """A process's view of any store. A call of a crashed process has no effect, or is never answered."""

    def __init__(self, store: Any, process: Process, disturbances: Disturbances) -> None:
        self._store = store
        self._process = process
        self._disturbances = disturbances

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        return self._disturbed(name, method) if inspect.iscoroutinefunction(method) else method

    def _disturbed(self, name: str, method: Any) -> Any:
        disturbances, process = self._disturbances, self._process

        async def call(*args: Any, **options: Any) -> Any:
            await disturbances.count(name)
            await process.wait_until_runs()
            disturbances.fail(f"before {name}")
            await disturbances.delay()
            await process.wait_until_runs()
            answer = await method(*args, **options)
            if args and callable(args[-1]):
                # Whoever listens to a store says last what to do when something may have been missed.
                disturbances.gaps.append((process, args[-1]))
            await disturbances.delay()
            await process.wait_until_runs()
            disturbances.fail(f"after {name}")
            return answer

        return call
