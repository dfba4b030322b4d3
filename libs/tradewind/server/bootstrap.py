"""One gRPC server over one or many services: its start and its orderly end."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Protocol

import grpc
import structlog
from grpc_channelz.v1.channelz import add_channelz_servicer
from grpc_reflection.v1alpha import reflection

from tradewind.server.access.gate import Gate
from tradewind.server.channels import MAX_METADATA_BYTES, MESSAGE_BYTES, MESSAGE_SLACK, address_of
from tradewind.server.connection_limits import MAX_IDLE_S, connection_options
from tradewind.server.errors import ErrorAnswers, ErrorTable
from tradewind.server.health import Health
from tradewind.server.interception import CallInterceptor, Middleware
from tradewind.server.listening import listen_at
from tradewind.server.metrics import SWITCH, CallMetrics
from tradewind.server.peer_identity import AllowedCallers
from tradewind.server.redis.checks import UnsafeStore
from tradewind.server.request_log import RequestLog
from tradewind.server.settings import TlsSettings, parts_of
from tradewind.server.streams import StockStreams
from tradewind.server.telemetry import CallTraces, Tracing, open_tracing
from tradewind.tls import TlsError, TlsFiles, server_credentials

STOP_S = 5.0
"""How long the `stop` of one service may take, after the calls have ended."""

_STOCK_NAMES = ("grpc.channelz.v1.Channelz", "grpc.health.v1.Health", reflection.SERVICE_NAME)

_log = structlog.get_logger(__name__)


class Service(Protocol):
    """One bounded context, ready to be bound to a server; alone in its process or alongside others."""

    @property
    def names(self) -> Sequence[str]:
        """Full names of the gRPC services it serves, its own first: `tradewind.api.registry.v1.RegistryService`."""
        ...

    @property
    def errors(self) -> ErrorTable:
        """How its exceptions are reported to callers."""
        ...

    @property
    def tracing(self) -> Tracing | None:
        """Where its own spans go, None if nowhere. The server ends it when the service has stopped."""
        ...

    def bind(self, server: grpc.aio.Server) -> None:
        """Add its handlers to the server."""
        ...

    async def start(self) -> None:
        """Reach the store and start the loops. Must not wait for other services: they may start after this one.

        Raises StartError, OSError (ConnectionError is one) or UnsafeStore with a sentence for people when it cannot.
        """
        ...

    async def drain(self) -> None:
        """End long streams and refuse new work; calls in flight go on."""
        ...

    async def stop(self) -> None:
        """Stop the loops and close every client; also called when `start` failed or was not called."""
        ...

    async def not_ready(self) -> str | None:
        """Say why it cannot serve at the moment; None when it can."""
        ...


class StartError(Exception):
    """The server cannot start; the message is one sentence for people."""


class Server:
    """Binds services to one address, with health, reflection, channelz and interceptors shared by all of them."""

    def __init__(
        self,
        services: Sequence[Service],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        drain_s: float = 10.0,
        max_message_bytes: int = MESSAGE_BYTES,
        max_connection_age_s: float = 0.0,
        max_connection_idle_s: float = MAX_IDLE_S,
        max_connections: int = 0,
        readiness_interval_s: float = 5.0,
        tracing: Tracing | None = None,
        gate: Gate | None = None,
        tls: TlsSettings | None = None,
        options: Sequence[tuple[str, int | str]] = (),
    ) -> None:
        """Pick a free port for `port` 0; `options` are gRPC's own and go last. Speaks plain text without `tls`.

        Without `max_connections`, it accepts as many as its limit of open files leaves room for.
        """
        self.host = host
        self.port = port
        self._services = tuple(services)
        self._drain_s = drain_s
        limits = connection_options(max_connection_age_s, max_connection_idle_s, max_connections)
        self._options = [*_options(max_message_bytes), *limits, *options]
        self._gate = gate
        self._tracing = tracing or open_tracing("tradewind", None)
        self._tls = tls or TlsSettings.model_construct()
        self._health = Health([(service.names, service.not_ready) for service in services], readiness_interval_s)
        self._request_log = RequestLog()
        self._stock_streams = StockStreams()
        self._server: grpc.aio.Server | None = None
        self._health_server: grpc.aio.Server | None = None
        self._has_served = False

    @property
    def address(self) -> str:
        """`host:port`, with the port that was picked once the server has started."""
        return address_of(self.host, self.port)

    async def start(self) -> None:
        """Take the address, start the services in their order, then answer calls.

        Raises StartError when the address is taken or a service cannot start; nothing stays open then.
        """
        interceptor = CallInterceptor(self._middlewares(), self._stock_streams.until_drained, self._gate)
        server = grpc.aio.server(interceptors=[interceptor], options=self._options)
        # Handlers go by name alone: for each registered method a task waits for its next call, and grpcio looks at all
        # of these tasks whenever one is done, which cost a service with 50 methods 40 us a call.
        server.add_registered_method_handlers = lambda *_: None  # type: ignore[method-assign]
        self._server = server
        names = list(_STOCK_NAMES)
        for service in self._services:
            service.bind(server)
            names.extend(service.names)
        self._health.bind(server)
        reflection.enable_server_reflection(names, server)
        add_channelz_servicer(server)
        try:
            self.port = _listen(server, self.host, self.port, _credentials(self._tls))
            if self._tls.health_port:
                self._health_server = await self._serve_health(self._tls.health_port)
            for service in self._services:
                await service.start()
            if self._gate is not None:
                self._gate.start()
            await self._health.start()
        except BaseException as error:
            # A server that was never started cannot be stopped and would keep its port.
            await server.start()
            await self.stop(drain_s=0)
            if isinstance(error, (OSError, UnsafeStore)):
                raise StartError(str(error)) from error
            raise
        await server.start()
        self._has_served = True
        _log.info("serving", address=self.address, services=[name for each in self._services for name in each.names])

    def _middlewares(self) -> list[Middleware]:
        """Return those outside the gate, the outermost first.

        The log sees the code that errors were turned into, within the call's trace.
        """
        middlewares: list[Middleware] = [CallTraces(self._tracing)]
        if SWITCH.on:
            middlewares.append(CallMetrics())
        table = ErrorTable().merged(*(service.errors for service in self._services))
        middlewares += [self._request_log, ErrorAnswers(table)]
        if self._tls.tls_allowed_names:
            middlewares.append(AllowedCallers(parts_of(self._tls.tls_allowed_names)))
        return middlewares

    async def _serve_health(self, port: int) -> grpc.aio.Server:
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        self._health.bind(server)
        _listen(server, self.host, port, None, "TRADEWIND_HEALTH_PORT")
        await server.start()
        return server

    async def stop(self, drain_s: float | None = None) -> None:
        """Drain and stop within `drain_s` (the constructor's for None) and a few seconds; safe to repeat."""
        server, self._server = self._server, None
        if server is None:
            return
        grace = self._drain_s if drain_s is None else drain_s
        deadline = time.monotonic() + grace
        await self._health.drain()
        self._request_log.drain()
        drains = [_run_bounded(service.drain(), grace, f"drain of {_title(service)}") for service in self._services]
        await asyncio.gather(*drains)
        self._stock_streams.drain()
        await server.stop(max(0.0, deadline - time.monotonic()))
        if self._gate is not None:
            await _run_bounded(self._gate.stop(), STOP_S, "stop of the gate")
        health_server, self._health_server = self._health_server, None
        if health_server is not None:
            await health_server.stop(0)
        for service in reversed(self._services):
            await _run_bounded(service.stop(), STOP_S, f"stop of {_title(service)}")
        # In parallel: each takes seconds if its endpoint is away.
        tracings = [self._tracing, *(each.tracing for each in self._services if each.tracing is not None)]
        await asyncio.gather(*(asyncio.to_thread(each.shutdown) for each in tracings))
        if self._has_served:
            _log.info("stopped", address=self.address)


async def _run_bounded(work: Any, timeout_s: float, what: str) -> None:
    try:
        async with asyncio.timeout(timeout_s or 0.1):
            await work
    except TimeoutError:
        _log.warning("stop_timed_out", what=what, after_s=timeout_s)
    except Exception:
        _log.exception("failed", what=what)


def _listen(
    server: grpc.aio.Server,
    host: str,
    port: int,
    credentials: grpc.ServerCredentials | None,
    variable: str = "TRADEWIND_PORT",
) -> int:
    try:
        return listen_at(server, address_of(host, port), credentials)
    except OSError as error:
        raise StartError(f"{error} (set TRADEWIND_HOST and {variable})") from None


def _credentials(tls: TlsSettings) -> grpc.ServerCredentials | None:
    files = tls.tls_files()
    require_client_cert = tls.tls_require_client_cert or bool(tls.tls_allowed_names or tls.tls_roles)
    if files is None and not require_client_cert:
        return None
    try:
        return server_credentials(files or TlsFiles(), require_client_cert=require_client_cert)
    except TlsError as error:
        raise StartError(str(error)) from error


def _options(max_message_bytes: int) -> list[tuple[str, int | str]]:
    message_bytes = max_message_bytes + MESSAGE_SLACK
    return [
        # Without this, two servers on one port both start, and each gets some of the calls.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", message_bytes),
        ("grpc.max_send_message_length", message_bytes),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    ]


def _title(service: Service) -> str:
    return ", ".join(service.names)
