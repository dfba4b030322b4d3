"""Registers a worker with the registry and keeps reporting that it is alive."""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import grpc

from tradewind.api.registry.v1 import node_type_pb2, registry_service_pb2
from tradewind.server.backoff import Backoff
from tradewind.worker.channel import explain
from tradewind.worker.errors import WorkerRefused
from tradewind.worker.identity import Identity
from tradewind.worker.times import seconds_of

if TYPE_CHECKING:
    from tradewind.api.registry.v1.registry_service_pb2_grpc import RegistryServiceAsyncStub

logger = logging.getLogger("tradewind.worker")

CALL_TIMEOUT = 10.0
_DEFAULT_INTERVAL = 20.0
_NOT_ALLOWED = (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED)
_REFUSALS = (grpc.StatusCode.INVALID_ARGUMENT, *_NOT_ALLOWED)


class Registration:
    """Keeps one worker listed: registers it, sends heartbeats as often as the registry says, registers again when told.

    It keeps trying to reach an unreachable registry forever; work goes on meanwhile. Heartbeats come up to a fifth
    earlier, at random: those of workers that an outage has brought into step come apart again.
    """

    def __init__(
        self,
        stub: "RegistryServiceAsyncStub",
        identity: Identity,
        node_types: Sequence[node_type_pb2.NodeType],
        *,
        running: Callable[[], int],
        drain: Callable[[], None],
    ) -> None:
        """`running()` is the load for each heartbeat; `drain()` is called when the registry asks the worker to go."""
        self._stub = stub
        self._identity = identity
        self._node_types = node_types
        self._running = running
        self._drain = drain
        self._outage = _Outage()
        self._interval = _DEFAULT_INTERVAL
        self._draining = False
        self._due = asyncio.Event()
        self.registered = asyncio.Event()
        """Set once the first registration has gone through."""

    async def run(self) -> None:
        """Stay registered until cancelled. Raises WorkerRefused when the registry refuses this worker."""
        await self._register()
        backoff = Backoff()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval * random.uniform(0.8, 1.0)):
                    await self._due.wait()
            self._due.clear()
            while not await self._beat():
                await backoff.pause()
            backoff.reset()

    def report_draining(self) -> None:
        """Say with a heartbeat at once, and with all that follow, that the worker takes no new work."""
        self._draining = True
        self._due.set()

    async def leave(self) -> None:
        """Remove this incarnation of the worker from the registry, if that can be reached within two seconds."""
        request = registry_service_pb2.DeregisterWorkerRequest(
            worker_id=self._identity.worker_id, incarnation=self._identity.incarnation
        )
        try:
            await self._stub.DeregisterWorker(request, timeout=2.0)
        except grpc.aio.AioRpcError as error:
            logger.warning(
                "could not deregister; the registry lists this worker for up to another minute: %s", explain(error)
            )

    async def _register(self) -> None:
        backoff = Backoff()
        while True:
            request = registry_service_pb2.RegisterWorkerRequest(
                worker=self._identity.record(self._running()), node_types=self._node_types
            )
            try:
                response = await self._stub.RegisterWorker(request, timeout=CALL_TIMEOUT)
            except grpc.aio.AioRpcError as error:
                if error.code() in _REFUSALS:
                    raise WorkerRefused(f"the registry refuses this worker: {explain(error)}") from None
                self._outage.note(error)
                await backoff.pause()
                continue
            self._outage.end()
            for warning in response.warnings:
                logger.warning("%s", warning)
            self._interval = seconds_of(response.heartbeat_interval) or _DEFAULT_INTERVAL
            self.registered.set()
            return

    async def _beat(self) -> bool:
        request = registry_service_pb2.HeartbeatRequest(
            worker=self._identity.record(self._running()), draining=self._draining
        )
        try:
            response = await self._stub.Heartbeat(request, timeout=CALL_TIMEOUT)
        except grpc.aio.AioRpcError as error:
            if error.code() in _NOT_ALLOWED:
                raise WorkerRefused(f"the registry refuses this worker: {explain(error)}") from None
            self._outage.note(error)
            return False
        self._outage.end()
        if response.register_again:
            await self._register()
        if response.drain:
            self._drain()
        return True


class _Outage:
    """Logs in two lines that calls to the registry fail: one when that begins, one when it is over."""

    def __init__(self) -> None:
        self._begun_s = 0.0
        self._failed = 0

    def note(self, error: grpc.aio.AioRpcError) -> None:
        """Note that a call has failed."""
        if not self._failed:
            self._begun_s = time.monotonic()
            logger.warning("calls to the registry fail, trying again: %s", explain(error))
        self._failed += 1

    def end(self) -> None:
        """Note that a call has succeeded."""
        if self._failed:
            seconds = time.monotonic() - self._begun_s
            logger.warning("calls to the registry succeed again; %s failed within %.0f s", self._failed, seconds)
            self._failed = 0
