"""How an ad-hoc task, or every item of a batch, is carried out."""

from collections.abc import Mapping
from typing import Any

from google.protobuf.duration_pb2 import Duration

from tradewind.api.node_task_manager.v1 import batch_pb2, retry_pb2
from tradewind.client.wire import Seconds, span
from tradewind.flow import Cache, Retry, Timeouts
from tradewind.flow.spec import concurrency_of, key_rate_of
from tradewind.flow.values import seconds_in


def options_of(
    *,
    require_worker: bool,
    timeouts: Timeouts | None,
    retry: Retry | None,
    priority: int,
    concurrency: Mapping[str, Any] | None,
    rate: Mapping[str, Any] | None,
    cache: Cache | str | None,
) -> batch_pb2.TaskOptions:
    """Return the options as they travel; None leaves it to the server. Raises ValueError for what is no time."""
    given = timeouts or Timeouts()
    return batch_pb2.TaskOptions(
        schedule_to_start=_duration(given.schedule_to_start),
        start_to_close=_duration(given.start_to_close),
        heartbeat_timeout=_duration(given.heartbeat),
        total_timeout=_duration(given.total),
        require_worker=require_worker,
        retry=None if retry is None else _retry(retry),
        priority=priority,
        concurrency=None if concurrency is None else concurrency_of(concurrency),
        rate=None if rate is None else key_rate_of(rate),
        cache=None if cache is None else Cache.of(cache).to_message(),
    )


def _retry(retry: Retry) -> retry_pb2.RetryPolicy:
    return retry_pb2.RetryPolicy(
        attempts=retry.attempts,
        initial=_duration(retry.initial),
        factor=retry.factor,
        maximum=_duration(retry.maximum),
        jitter=retry.jitter,
        non_retryable=retry.non_retryable,
    )


def _duration(length: Seconds | str | None) -> Duration | None:
    if length is None:
        return None
    seconds = seconds_in(length)
    if seconds < 0:
        raise ValueError(f"a length of time must not be negative, is {seconds} s")
    return span(seconds)
