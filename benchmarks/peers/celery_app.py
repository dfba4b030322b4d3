"""Celery's application and nodes, tuned for speed as long as the guarantees stay comparable.

Left at defaults: results in the backend (Tradewind stores them too), early acknowledgement (the faster choice, though
a task is lost with its worker), JSON as the serializer.
Changed for speed: no events, no gossip, mingle or heartbeats, no rate limits, no remote control; 64 tasks prefetched
per process instead of 4.
"""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import os

import celery

BROKER, BACKEND = "BENCHMARK_STORE_URL", "BENCHMARK_RESULTS_URL"
"""Environment variables with the URLs of stores."""

app = celery.Celery("benchmark", broker=os.environ.get(BROKER), backend=os.environ.get(BACKEND))
app.conf.update(
    task_serializer="json",
    result_serializer="json",
    accept_content=["json"],
    task_acks_late=False,
    task_track_started=False,
    task_send_sent_event=False,
    worker_send_task_events=False,
    worker_disable_rate_limits=True,
    worker_enable_remote_control=False,
    worker_prefetch_multiplier=64,
    result_expires=3600,
    result_extended=False,
    broker_connection_retry_on_startup=True,
)

WORKER_OPTIONS = (
    *("--pool", "prefork", "--concurrency", "2", "--loglevel", "WARNING"),
    *("--without-gossip", "--without-mingle", "--without-heartbeat"),
)

Value = dict[str, int]


def _increment(value: Value) -> Value:
    return {"n": value["n"] + 1}


def _join(values: list[Value]) -> Value:
    return {"n": sum(value["n"] for value in values)}


increment = app.task(name="increment")(_increment)
join = app.task(name="join")(_join)
