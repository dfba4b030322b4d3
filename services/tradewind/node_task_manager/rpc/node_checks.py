"""What must hold for nodes of plans and for ad-hoc work alike; every fault is listed with its path."""

from collections.abc import Iterator

from tradewind.api.node_task_manager.v1 import batch_pb2, component_pb2, node_task_pb2
from tradewind.node_task_manager.domain.plan import HIGHEST_PRIORITY, LOWEST_PRIORITY
from tradewind.node_task_manager.rpc.retry_mapping import retry_faults
from tradewind.node_task_manager.rpc.times import is_duration
from tradewind.server.faults import Violation
from tradewind.server.identifiers import check_identifier
from tradewind.server.rates import Rate, cost_fault
from tradewind.server.timestamps import milliseconds

MAX_CONFIG_BYTES = 256 * 1024
_SHORTEST_SILENCE_MS = 1000


def node_faults(path: str, given: component_pb2.PlanNode | batch_pb2.TaskOptions) -> Iterator[Violation | None]:
    """Yield the faults of times, priority, retries and limits."""
    for name in ("schedule_to_start", "start_to_close", "heartbeat_timeout", "total_timeout"):
        if not is_duration(getattr(given, name)):
            yield Violation(f"{path}.{name}", "must be 0 to 100 years")
    if 0 < milliseconds(given.heartbeat_timeout) < _SHORTEST_SILENCE_MS:
        yield Violation(f"{path}.heartbeat_timeout", "must be 0 for none, or at least 1 s")
    if not LOWEST_PRIORITY <= given.priority <= HIGHEST_PRIORITY:
        bounds = f"{LOWEST_PRIORITY} to {HIGHEST_PRIORITY}"
        yield Violation(f"{path}.priority", f"must be {bounds}, is {given.priority}")
    yield from retry_faults(f"{path}.retry", given.retry)
    if given.HasField("concurrency"):
        yield from _concurrency_faults(f"{path}.concurrency", given.concurrency)
    if given.HasField("rate"):
        yield from _rate_faults(f"{path}.rate", given.rate)


def _rate_faults(path: str, given: node_task_pb2.KeyRate) -> Iterator[Violation | None]:
    yield check_identifier(f"{path}.key", given.key)
    try:
        rate = Rate.parse(given.limit)
    except ValueError as error:
        yield Violation(f"{path}.limit", str(error))
    else:
        if fault := cost_fault(given.cost or 1, rate):
            yield Violation(f"{path}.cost", fault)


def _concurrency_faults(path: str, concurrency: node_task_pb2.Concurrency) -> Iterator[Violation | None]:
    yield check_identifier(f"{path}.key", concurrency.key)
    if concurrency.max < 1:
        yield Violation(f"{path}.max", f"must be at least 1, is {concurrency.max}")
    if concurrency.when_full not in node_task_pb2.WhenFull.values():
        yield Violation(f"{path}.when_full", f"{concurrency.when_full} is not a known value")
