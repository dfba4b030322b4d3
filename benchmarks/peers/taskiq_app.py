"""Taskiq's application: BENCHMARK_COUNT tasks every second, over a list in Redis.

The list is its fastest broker (it acknowledges nothing), and labels its fastest source of schedules: nothing is read
from a store.
"""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import os
import time

from taskiq import TaskiqScheduler
from taskiq.schedule_sources import LabelScheduleSource
from taskiq_redis import ListQueueBroker

from benchmarks import stamps

broker = ListQueueBroker(os.environ.get("BENCHMARK_STORE_URL", ""))
_SCHEDULE = [{"interval": 1} for _ in range(int(os.environ.get("BENCHMARK_COUNT", "0")))]


async def _stamp() -> None:
    # Taskiq's scheduler sends at each full second.
    stamps.stamp(float(int(time.time())))


stamp = broker.task(task_name="stamp", schedule=_SCHEDULE)(_stamp)
scheduler = TaskiqScheduler(broker, [LabelScheduleSource(broker)])
