"""How an ad-hoc task, or every item of a batch, is to be run."""

from collections.abc import Mapping
from typing import Any

from google.protobuf.duration_pb2 import Duration

from tradewind.api.node_task_manager.v1 import batch_pb2, retry_pb2
from tradewind.client.messages import build
from tradewind.client.wire import Seconds, seconds_of, span
from tradewind.flow import Cache, Retry, Timeouts
from tradewind.flow.rules import check_rule
from tradewind.flow.spec import concurrency_of, key_rate_of


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
    """Return the options as a message; None leaves an option to the server.

    Raises ValueError for an invalid length of time or rule.
    """
    for name, rule in (("timeouts", timeouts), ("retry", retry), ("cache", None if isinstance(cache, str) else cache)):
        if rule is not None:
            check_rule(name, rule, name)
    given = timeouts or Timeouts()
    return build(
        batch_pb2.TaskOptions,
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
    return build(
        retry_pb2.RetryPolicy,
        attempts=retry.attempts,
        initial=_duration(retry.initial),
        factor=retry.factor,
        maximum=_duration(retry.maximum),
        jitter=retry.jitter,
        non_retryable=retry.non_retryable,
    )


def _duration(length: Seconds | None) -> Duration | None:
    return None if length is None else span(seconds_of(length))
