"""Runs that wait to be stored: in order, bounded, and cut into pieces that one script can take."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

from tradewind.node_task_manager.domain.component import RunSubmission, SubmitResult
from tradewind.node_task_manager.use_cases.report import MAX_BYTES
from tradewind.server.faults import Exhausted

MAX_RUNS = 200
MAX_WAITING = 10_000
MAX_WAITING_BYTES = 64 * 1024 * 1024

WaitingRun: TypeAlias = tuple[RunSubmission, asyncio.Future[SubmitResult]]
"""A run, and the future of its answer."""


class RunQueue:
    """Runs in the order of their arrival."""

    def __init__(self) -> None:
        self._waiting: deque[WaitingRun] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def require_room(self) -> None:
        """Raise Exhausted when too many runs are waiting."""
        if len(self._waiting) > MAX_WAITING or self._bytes > MAX_WAITING_BYTES:
            raise Exhausted("QUEUE_FULL", "too many runs are waiting to be stored; submit again in a second")

    def put(self, run: RunSubmission) -> asyncio.Future[SubmitResult]:
        """Add a run, however many there are; return the future of its answer."""
        future: asyncio.Future[SubmitResult] = asyncio.get_running_loop().create_future()
        self._waiting.append((run, future))
        self._bytes += len(run.inputs_json)
        return future

    def next_batch(self) -> list[WaitingRun]:
        """Take as many runs as one script may have, without those whose callers have gone."""
        batch: list[WaitingRun] = []
        size = 0
        while self._waiting and len(batch) < MAX_RUNS:
            run, future = self._waiting[0]
            size += len(run.inputs_json)
            if batch and size > MAX_BYTES:
                break
            self._waiting.popleft()
            self._bytes -= len(run.inputs_json)
            if not future.done():
                batch.append((run, future))
        return batch

    def refuse_all(self, error: Exception) -> None:
        """Answer all runs with an error."""
        refuse(self._waiting, error)


def refuse(runs: Sequence[WaitingRun], error: Exception) -> None:
    """Answer runs with an error, unless they were answered or their callers have gone."""
    for _, future in runs:
        if not future.done():
            future.set_exception(error)
