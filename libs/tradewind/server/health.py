"""Health under the names `liveness`, `readiness`, "" and each service's."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc
import structlog
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthServicer, add_HealthServicer_to_server

from tradewind.server.beats import beat
from tradewind.server.interception import Context
from tradewind.server.metrics import READY
from tradewind.server.quoting import quoted
from tradewind.server.side_tasks import SideTasks

LIVENESS = "liveness"
READINESS = "readiness"

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN

_log = structlog.get_logger(__name__)

Check = Callable[[], Awaitable[str | None]]
"""Asks a service why it is not ready; None when it is ready."""


class ReadOnly(str):
    """Why a service refuses calls that write while it answers reads."""

    __slots__ = ()


class Health:
    """Serves health. `liveness` depends only on this process; the other names depend on what the services say.

    A service's name follows that service; "" and `readiness` need all of them, but accept a service that only answers
    reads: all replicas share a store, so otherwise no replica would be left to read from, or to say why writing is
    refused. Services are checked every `interval_s`; a check that takes longer than `timeout_s` counts as not ready.
    """

    def __init__(
        self, checks: Sequence[tuple[Sequence[str], Check]], interval_s: float = 5.0, timeout_s: float = 2.0
    ) -> None:
        self._checks = checks
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._servicer = _Servicer()
        self._watching = SideTasks()
        self._last_reasons: list[str] = []

    def bind(self, server: grpc.aio.Server) -> None:
        """Offer health on this server."""
        add_HealthServicer_to_server(self._servicer, server)

    async def start(self) -> None:
        """Check once, then keep checking."""
        self._servicer.set(LIVENESS, _SERVING)
        await self._check_all()
        self._watching.begin(self._watch())

    async def drain(self) -> None:
        """Answer NOT_SERVING under every name from now on."""
        await self._watching.end()
        self._servicer.drain()

    async def _watch(self) -> None:
        while True:
            await beat(self._interval_s)
            await self._check_all()

    async def _check_all(self) -> None:
        reasons: list[str] = []
        for names, check in self._checks:
            reason = await self._run_check(check)
            if reason is not None:
                reasons.append(reason)
            for name in names:
                self._servicer.set(name, _SERVING if reason is None else _NOT_SERVING)
            # Its further names would be alerted on as services of their own.
            for name in names[:1]:
                READY.labels(name).set(reason is None)
        ready = all(isinstance(reason, ReadOnly) for reason in reasons)
        for name in ("", READINESS):
            self._servicer.set(name, _SERVING if ready else _NOT_SERVING)
        if reasons != self._last_reasons:
            self._last_reasons = reasons
            if reasons:
                _log.warning("not_ready", reasons=reasons)
            else:
                _log.info("ready")

    async def _run_check(self, check: Check) -> str | None:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await check()
        except TimeoutError:
            return f"the readiness check took longer than {self._timeout_s} s"
        except Exception as error:
            # A service that cannot even be asked must not end the watch over the others.
            return f"the readiness check failed: {type(error).__name__}: {error}"


class _Servicer(HealthServicer):
    """Reports the statuses. In the stock servicer, setting one waits until every watcher has read the previous one."""

    def __init__(self) -> None:
        self._statuses: dict[str, int] = {}
        self._changed = asyncio.Event()

    def set(self, name: str, status: int) -> None:
        """Report this status under this name."""
        if self._statuses.get(name) != status:
            self._statuses[name] = status
            self._changed.set()
            self._changed = asyncio.Event()

    def drain(self) -> None:
        """Report NOT_SERVING under every name."""
        for name in self._statuses:
            self.set(name, _NOT_SERVING)

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Context) -> health_pb2.HealthCheckResponse:
        status = self._statuses.get(request.service)
        if status is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"unknown service {quoted(request.service)}")
        return health_pb2.HealthCheckResponse(status=status)

    async def List(self, request: object, context: Context) -> Any:
        statuses = {name: health_pb2.HealthCheckResponse(status=each) for name, each in self._statuses.items()}
        # The stubs do not know this message.
        messages: Any = health_pb2
        return messages.HealthListResponse(statuses=statuses)

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Context) -> None:
        last = None
        while True:
            changed = self._changed
            status = self._statuses.get(request.service, _UNKNOWN)
            if status != last:
                await context.write(health_pb2.HealthCheckResponse(status=status))
                last = status
            await changed.wait()
