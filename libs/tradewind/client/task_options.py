"""How an ad-hoc task, or every item of a batch, is carried out."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from google.protobuf.duration_pb2 import Duration

from tradewind.api.node_task_manager.v1 import batch_pb2, retry_pb2
from tradewind.client.wire import Seconds, seconds_of
from tradewind.flow import Retry, Timeouts
from tradewind.flow.spec import concurrency_of, key_rate_of

_LENGTH = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def options_of(
    *,
    require_worker: bool,
    timeouts: Timeouts | None,
    retry: Retry | None,
    priority: int,
    concurrency: Mapping[str, Any] | None,
    rate: Mapping[str, Any] | None,
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
    message = Duration()
    message.FromMilliseconds(round(_seconds(length) * 1000))
    return message


def _seconds(length: float | str | timedelta) -> float:
    if not isinstance(length, str):
        return seconds_of(length)
    match = _LENGTH.fullmatch(length.strip())
    if match is None:
        raise ValueError(f'"{length}" is no length of time: give seconds, or text such as "500ms", "5s", "5m"')
    return float(match[1]) * _UNITS[match[2]]
