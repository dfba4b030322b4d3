"""The stay of a worker: it registers, works, and leaves when it is asked to."""

import asyncio
import contextlib
import logging

from tradewind.worker.executor import Executor
from tradewind.worker.link import Link
from tradewind.worker.registration import Registration

logger = logging.getLogger("tradewind.worker")

REGISTRY_PATIENCE = 5.0
"""Seconds that work waits for the first registration; after that it begins without one."""
STOP_GRACE = 1.0
"""Seconds that nodes have to clean up before they are given back."""
FLUSH_TIMEOUT = 5.0
"""Seconds within which the last outcomes must be acknowledged."""


class Departure:
    """When a worker is to leave."""

    def __init__(self) -> None:
        self.leaving = asyncio.Event()
        """Set when the worker is to take no more node tasks."""
        self.stopping = asyncio.Event()
        """Set when running nodes have only the grace to finish."""

    def leave_when_done(self) -> None:
        """Have the worker leave once its nodes have ended; the registry asks for this with each heartbeat."""
        if not self.leaving.is_set():
            logger.info("leaving, as the registry asks: running nodes may take as long as they need")
        self.leaving.set()

    def stop(self) -> None:
        """Have the worker leave within the grace."""
        self.stopping.set()
        self.leaving.set()


class Stay:
    """Keeps a worker registered and its link up, until it has left or a server refuses it."""

    def __init__(
        self,
        registration: Registration,
        link: Link,
        executor: Executor,
        departure: Departure,
        grace_s: float,
        ready: asyncio.Event,
    ) -> None:
        """`ready` is set once the worker is registered and node tasks may come."""
        self._registration = registration
        self._link = link
        self._executor = executor
        self._departure = departure
        self._grace_s = grace_s
        self._ready = ready

    async def run(self) -> None:
        """Return when the worker has left. Raises WorkerError when a server refuses it."""
        registering = asyncio.create_task(self._registration.run())
        working = asyncio.create_task(self._work())
        leaving = asyncio.create_task(self._leave())
        tasks = (registering, working, leaving)
        try:
            # A refusal ends the worker also while it is leaving: what it runs may already run elsewhere.
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                await asyncio.wait((working,), timeout=1.0)
        finally:
            for task in tasks:
                task.cancel()
            await self._executor.close()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            if self._registration.registered.is_set():
                await self._registration.leave()
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _work(self) -> None:
        # The node task manager asks the registry about this worker, so registration comes first; but a registry that is
        # away for longer must not keep work waiting.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REGISTRY_PATIENCE):
                await self._registration.registered.wait()
        connecting = asyncio.create_task(self._set_ready())
        try:
            await self._link.run()
        finally:
            connecting.cancel()

    async def _set_ready(self) -> None:
        await self._registration.registered.wait()
        await self._link.connected.wait()
        self._ready.set()

    async def _leave(self) -> None:
        """When asked to, take no more node tasks, let nodes finish, give back the rest, and end the link once all is
        acknowledged."""
        await self._departure.leaving.wait()
        self._link.drain()
        if self._executor.held:
            self._registration.report_draining()
        idle = asyncio.create_task(self._executor.wait_idle())
        stopping = asyncio.create_task(self._departure.stopping.wait())
        try:
            # A worker that the registry drains may finish in its own time; `stop` sets the grace.
            await asyncio.wait((idle, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not idle.done():
                await asyncio.wait((idle,), timeout=self._grace_s)
            if not idle.done():
                self._executor.give_back_all("the worker is leaving", STOP_GRACE)
                await idle
        finally:
            idle.cancel()
            stopping.cancel()
        try:
            async with asyncio.timeout(FLUSH_TIMEOUT):
                await self._link.finish()
        except TimeoutError:
            logger.warning("the last outcomes were not acknowledged; their node tasks may run again")
