"""The metrics of a worker, for Prometheus; imported only if TRADEWIND_METRICS_PORT is set."""

from collections.abc import Callable

from prometheus_client import Counter, Gauge, Histogram

from tradewind.server.metrics import REGISTRY, SLOW, BoundedNames, MetricsEndpoint

NODE_SECONDS = Histogram(
    "tradewind_worker_node_seconds",
    "Time that nodes took in this worker, by node type and outcome.",
    ["node_type", "outcome"],
    buckets=SLOW,
    registry=REGISTRY,
)
HELD = Gauge("tradewind_worker_held", "Node tasks that this worker holds.", registry=REGISTRY)
CAPACITY = Gauge("tradewind_worker_capacity", "Most node tasks that this worker may hold.", registry=REGISTRY)
LEASES_LOST = Counter(
    "tradewind_worker_leases_lost_total", "Attempts stopped here because their lease was lost.", registry=REGISTRY
)

_node_type = BoundedNames()


class WorkerMetrics:
    """The metrics of a worker while it serves, at `/metrics` of a port of its own."""

    def __init__(self, host: str, port: int, capacity: int, held: Callable[[], int]) -> None:
        self._endpoint = MetricsEndpoint(host, port)
        self._capacity = capacity
        self._held = held

    async def open(self) -> None:
        """Start listening. Raises ConnectionError, with a sentence for a person, when the port is taken."""
        await self._endpoint.open()
        CAPACITY.set(self._capacity)
        HELD.set_function(self._held)

    async def close(self) -> None:
        """Stop listening."""
        await self._endpoint.close()

    def ended(self, node_type: str, outcome: str, duration_ns: int) -> None:
        """Count an attempt that ended as `completed`, `failed`, `terminated` or `given_back`."""
        NODE_SECONDS.labels(_node_type(node_type), outcome).observe(duration_ns / 1e9)

    def lost(self) -> None:
        """Count an attempt whose lease was lost."""
        LEASES_LOST.inc()
