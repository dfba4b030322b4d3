"""Maps between Protobuf and the domain: retries."""

from collections.abc import Iterator

from tradewind.api.node_task_manager.v1 import batch_pb2, component_pb2, retry_pb2, work_pb2
from tradewind.node_task_manager.domain.retry import LONGEST_WAIT_MS, RetryPolicy, RetryRequest
from tradewind.server.faults import Violation
from tradewind.server.timestamps import milliseconds

_MAX_ATTEMPTS = 1000
_LARGEST_FACTOR = 1000
_MAX_NAMES = 100
_LONGEST_NAME = 256
_DEFAULT = RetryPolicy(attempts=1)


def retry_policy(node: component_pb2.PlanNode | batch_pb2.TaskOptions) -> RetryPolicy | None:
    """Parse the retry policy of a node, None when it has none."""
    if not node.HasField("retry"):
        return None
    given = node.retry
    initial_ms = milliseconds(given.initial) if given.HasField("initial") else _DEFAULT.initial_ms
    return RetryPolicy(
        attempts=given.attempts if given.HasField("attempts") else _DEFAULT.attempts,
        initial_ms=initial_ms,
        factor=given.factor if given.HasField("factor") else _DEFAULT.factor,
        max_ms=milliseconds(given.maximum) if given.HasField("maximum") else max(_DEFAULT.max_ms, initial_ms),
        jitter=given.jitter if given.HasField("jitter") else _DEFAULT.jitter,
        non_retryable=tuple(given.non_retryable),
    )


def retry_faults(path: str, given: retry_pb2.RetryPolicy) -> Iterator[Violation]:
    """Yield the faults of a policy."""
    if given.HasField("attempts") and not 1 <= given.attempts <= _MAX_ATTEMPTS:
        yield Violation(f"{path}.attempts", f"must be from 1 to {_MAX_ATTEMPTS}, is {given.attempts}")
    for name in ("initial", "maximum"):
        if given.HasField(name) and not 0 <= milliseconds(getattr(given, name)) <= LONGEST_WAIT_MS:
            yield Violation(f"{path}.{name}", "must be from 0 to 365 days")
    if (
        given.HasField("initial")
        and given.HasField("maximum")
        and milliseconds(given.maximum) < milliseconds(given.initial)
    ):
        yield Violation(f"{path}.maximum", "must not be less than initial")
    # Written so that NaN is a fault, too.
    if given.HasField("factor") and not 1 <= given.factor <= _LARGEST_FACTOR:
        yield Violation(f"{path}.factor", f"must be from 1 to {_LARGEST_FACTOR}, is {given.factor:g}")
    if given.HasField("jitter") and not 0 <= given.jitter <= 1:
        yield Violation(f"{path}.jitter", f"must be from 0 to 1, is {given.jitter:g}")
    if len(given.non_retryable) > _MAX_NAMES:
        yield Violation(f"{path}.non_retryable", f"at most {_MAX_NAMES} names, there are {len(given.non_retryable)}")
    for at, name in enumerate(given.non_retryable[:_MAX_NAMES]):
        if not 0 < len(name) <= _LONGEST_NAME:
            yield Violation(f"{path}.non_retryable[{at}]", f"must have 1 to {_LONGEST_NAME} characters")


def retry_request(failure: work_pb2.NodeTaskFailure) -> RetryRequest | None:
    """Parse what a failure says about the next attempt; a time out of bounds becomes the nearest bound."""
    if failure.non_retryable:
        return RetryRequest(none=True)
    if failure.HasField("retry_after"):
        return RetryRequest(min(max(milliseconds(failure.retry_after), 0), LONGEST_WAIT_MS))
    return None
