"""Metrics of this process for Prometheus: what every server counts, and the endpoint that serves it.

Each service declares its own metrics beside its use cases, in the same registry. Labels have few values, which the code
bounds: never an id of a flow, cycle, task, worker or user.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import grpc
import structlog
from google.protobuf import descriptor_pool
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, ProcessCollector, start_http_server

from tradewind.server.interception import Behavior, Context
from tradewind.server.side_tasks import SideTasks


class _Registry(CollectorRegistry):
    """Leaves out when each counter and histogram was made: a further series for each, which nobody asked for."""

    def collect(self) -> Iterator[Metric]:
        for family in super().collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family


REGISTRY = _Registry()
ProcessCollector(registry=REGISTRY)

FAST = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Bounds in seconds for operations that take milliseconds."""
SLOW = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Bounds in seconds for operations that may take minutes."""

RPC_SECONDS = Histogram(
    "tradewind_rpc_seconds",
    "Time to answer unary calls, by method and status code.",
    ["method", "code"],
    buckets=FAST,
    registry=REGISTRY,
)
STREAMS_OPEN = Gauge("tradewind_streams_open", "Open streams, by method.", ["method"], registry=REGISTRY)
LOOP_LAG_SECONDS = Histogram(
    "tradewind_event_loop_lag_seconds",
    "How late the event loop wakes a sleeping task, sampled four times a second.",
    buckets=FAST,
    registry=REGISTRY,
)
READY = Gauge("tradewind_ready", "1 while the service can serve, 0 while it cannot.", ["service"], registry=REGISTRY)
SCRIPT_SECONDS = Histogram(
    "tradewind_store_script_seconds",
    "Time from sending a script to the store until its reply arrives, by script.",
    ["script"],
    buckets=FAST,
    registry=REGISTRY,
)
SCRIPT_ERRORS = Counter(
    "tradewind_store_script_errors_total", "Scripts that the store refused or did not answer.", registry=REGISTRY
)

_LAG_S = 0.25
_SCRAPE_S = 10.0
"""How long a scraper may take to send its request, or to take in more of the answer."""
_MAX_NAMES = 200
OTHER = "other"
"""The label for all names after the first 200."""

_log = structlog.get_logger(__name__)


class Switch:
    """Whether any endpoint serves metrics: the hot path counts only then."""

    __slots__ = ("_endpoints", "on")

    def __init__(self) -> None:
        self._endpoints = 0
        self.on = False

    def turn(self, by: int) -> None:
        """Count an endpoint that opens (1) or closes (-1)."""
        self._endpoints += by
        self.on = self._endpoints > 0


SWITCH = Switch()


class BoundedNames:
    """Names chosen by people, such as node types, as label values: all names after the first 200 become `other`."""

    def __init__(self, limit: int = _MAX_NAMES) -> None:
        self._limit = limit
        self._names: set[str] = set()

    def __call__(self, name: str) -> str:
        """Return the name, or `other`."""
        if name in self._names:
            return name
        if len(self._names) >= self._limit:
            return OTHER
        self._names.add(name)
        return name


def counter_by(label: str, values: Iterable[str], name: str, text: str) -> Counter:
    """Return a counter with one label, each value of which is at 0 from the start.

    A query sees no first event that brings its series along, and has no answer where it divides by or with none.
    """
    counter = Counter(name, text, [label], registry=REGISTRY)
    for value in values:
        counter.labels(value)
    return counter


class MetricsEndpoint:
    """Serves `/metrics` from its own thread while open, and watches the loop's lag; does nothing if the port is 0."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._server: Any = None
        self._watching = SideTasks()

    async def open(self) -> None:
        """Listen. Raises ConnectionError with a sentence for people when the port is taken."""
        if not self._port:
            return
        try:
            self._server, _ = start_http_server(self._port, self._host, REGISTRY)
        except OSError as error:
            raise ConnectionError(
                f"cannot serve metrics on {self._host}:{self._port}: {error.strerror}; set TRADEWIND_METRICS_PORT"
            ) from error
        self._server.RequestHandlerClass = _bounded(self._server.RequestHandlerClass)
        SWITCH.turn(1)
        self._watching.begin(_watch_lag())
        _log.info("serving_metrics", address=f"{self._host}:{self._port}")

    async def close(self) -> None:
        """Stop listening; safe to repeat."""
        server, self._server = self._server, None
        if server is None:
            return
        SWITCH.turn(-1)
        await self._watching.end()
        await asyncio.to_thread(server.shutdown)
        server.server_close()


def _bounded(handler: Any) -> type:
    """Return a handler of requests that gives up on a scraper which hangs, and with it the thread that serves it."""

    class Bounded(handler):  # type: ignore[misc]
        timeout = _SCRAPE_S

        def handle(self) -> None:
            with suppress(TimeoutError):
                super().handle()

    return Bounded


class CallMetrics:
    """Measures each call."""

    def around(self, method: str, behavior: Behavior) -> Behavior:
        """Surround the calls of one method; gRPC's own services are not measured."""
        if method.startswith("/grpc."):
            return behavior
        name, streaming = _named(method)

        async def unary(request: Any, context: Context) -> Any:
            started_s = time.perf_counter()
            code = grpc.StatusCode.CANCELLED
            try:
                response = await behavior(request, context)
                code = grpc.StatusCode.OK
                return response
            except grpc.aio.AbortError:
                code = context.code() or grpc.StatusCode.UNKNOWN
                raise
            finally:
                RPC_SECONDS.labels(name, code.name).observe(time.perf_counter() - started_s)

        async def stream(request: Any, context: Context) -> Any:
            gauge = STREAMS_OPEN.labels(name)
            gauge.inc()
            try:
                return await behavior(request, context)
            finally:
                gauge.dec()

        return stream if streaming else unary


def _named(method: str) -> tuple[str, bool]:
    """Return `Service/Method`, and whether it streams; "unknown" for a method that a caller made up."""
    service, _, name = method.lstrip("/").partition("/")
    try:
        found = descriptor_pool.Default().FindMethodByName(f"{service}.{name}")
    except KeyError:
        return "unknown", False
    return f"{service.rpartition('.')[2]}/{name}", bool(found.client_streaming or found.server_streaming)


async def _watch_lag() -> None:
    while True:
        due = time.perf_counter() + _LAG_S
        await asyncio.sleep(_LAG_S)
        LOOP_LAG_SECONDS.observe(max(0.0, time.perf_counter() - due))
