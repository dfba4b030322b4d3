"""Runs that wait to be stored: in order, bounded, and cut into pieces that one script can take."""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from tradewind.node_task_manager.domain.component import RunSubmission, SubmitResult
from tradewind.node_task_manager.use_cases.report import MAX_BYTES
from tradewind.server.faults import Exhausted

MAX_RUNS = 200
MAX_WAITING = 10_000
MAX_WAITING_BYTES = 64 * 1024 * 1024


class Answers:
    """The answers to runs that were submitted together; `future` has all of them, once each is there."""

    __slots__ = ("_count", "_results", "future")

    def __init__(self, count: int) -> None:
        self.future: asyncio.Future[list[SubmitResult]] = asyncio.get_running_loop().create_future()
        self._count = count
        self._results: list[SubmitResult] = []

    @property
    def unwanted(self) -> bool:
        """Whether nobody waits for them any more: the caller has gone, or has got an error."""
        return self.future.done()

    def add(self, result: SubmitResult) -> None:
        """Take the answer to the next run."""
        self._results.append(result)
        if len(self._results) == self._count and not self.future.done():
            self.future.set_result(self._results)


WaitingRun: TypeAlias = tuple[RunSubmission, Answers]
"""A run, and where its answer goes."""


class RunQueue:
    """Runs in the order of their arrival, in which they are answered as well."""

    def __init__(self) -> None:
        self._waiting: deque[WaitingRun] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def require_room(self) -> None:
        """Raise Exhausted when too many runs are waiting."""
        if len(self._waiting) > MAX_WAITING or self._bytes > MAX_WAITING_BYTES:
            raise Exhausted("QUEUE_FULL", "too many runs are waiting to be stored; submit again in a second")

    def put(self, runs: Sequence[RunSubmission]) -> asyncio.Future[list[SubmitResult]]:
        """Add runs, at least one and however many there are; return the future of their answers."""
        answers = Answers(len(runs))
        for run in runs:
            self._waiting.append((run, answers))
            self._bytes += len(run.inputs_json)
        return answers.future

    def next_batch(self) -> list[WaitingRun]:
        """Take as many runs as one script may have, without those whose callers have gone."""
        batch: list[WaitingRun] = []
        size = 0
        while self._waiting and len(batch) < MAX_RUNS:
            run, answers = self._waiting[0]
            size += len(run.inputs_json)
            if batch and size > MAX_BYTES:
                break
            self._waiting.popleft()
            self._bytes -= len(run.inputs_json)
            if not answers.unwanted:
                batch.append((run, answers))
        return batch

    def refuse_all(self, error: Exception) -> None:
        """Answer all runs with an error."""
        refuse(self._waiting, error)


def refuse(runs: Iterable[WaitingRun], error: Exception) -> None:
    """Answer runs with an error, unless they were answered or their callers have gone."""
    for _, answers in runs:
        if not answers.unwanted:
            answers.future.set_exception(error)
