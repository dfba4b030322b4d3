"""Reports of workers that wait to take effect: in order, bounded, and cut into pieces that one script can take."""

import asyncio
from collections import deque
from collections.abc import Sequence

from tradewind.node_task_manager.ports.work import Held, Outcome, Postponed
from tradewind.node_task_manager.use_cases.connected_worker import ConnectedWorker

MAX_OUTCOMES = 25
"""The most outcomes of a report."""
_MOST_OUTCOMES = 100
"""One script takes half of the outcomes that wait: as many as a report may have at least, so many at most. If it took
all, all running node tasks would go round as one batch: workers would wait while the store has it, and the store while
workers have it."""
MAX_BYTES = 2 * 1024 * 1024
_HELD_BYTES = 100
MAX_WAITING = 5000
MAX_WAITING_BYTES = 16 * 1024 * 1024


class Report:
    """The part of a worker's message that concerns one shard.

    Its outcomes take effect first, then what is given back or postponed, then the renewal of `held` and of leases that
    the worker cannot name (None: of all that it is believed to hold). At the end `sequence` is acknowledged, unless it
    is None.
    """

    __slots__ = (
        "failed_at",
        "given_back",
        "held",
        "outcomes",
        "postponed",
        "renew",
        "sequence",
        "size",
        "tries",
        "worker",
    )

    def __init__(
        self,
        worker: ConnectedWorker,
        outcomes: Sequence[Outcome] = (),
        sequence: int | None = None,
        *,
        given_back: Sequence[Held] = (),
        postponed: Sequence[Postponed] = (),
        renew: bool = False,
        held: Sequence[Held] | None = None,
    ) -> None:
        self.worker = worker
        self.outcomes = outcomes
        self.sequence = sequence
        self.given_back = given_back
        self.postponed = postponed
        self.renew = renew
        self.held = held
        self.size = sum(map(_size, outcomes)) + _HELD_BYTES * (len(given_back) + len(held or ()))
        self.tries = 0
        self.failed_at = 0

    @property
    def plain(self) -> bool:
        """Whether it has only outcomes and was not tried before: such reports may overtake each other."""
        return self.only_outcomes and not self.tries

    @property
    def only_outcomes(self) -> bool:
        """Whether only its outcomes have yet to take effect."""
        return not (self.given_back or self.postponed or self.renew)


class ReportQueue:
    """Reports in the order of their arrival.

    Beyond 5000 reports, or 16 MiB, `wait_for_room` keeps callers with more waiting.
    """

    def __init__(self) -> None:
        self._waiting: deque[Report] = deque()
        self._size = self._outcomes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, report: Report) -> None:
        """Add a report, however many there are."""
        self._waiting.append(report)
        self._size += report.size
        self._outcomes += len(report.outcomes)
        if len(self._waiting) > MAX_WAITING or self._size > MAX_WAITING_BYTES:
            self._has_room.clear()

    @property
    def plain(self) -> bool:
        """Whether the first report is plain."""
        return bool(self._waiting) and self._waiting[0].plain

    def next_batch(self) -> list[Report]:
        """Take reports for one script, bounded by count and bytes, but at least one if there is any.

        They are all plain; or a single report that failed before; or one that is not plain, and those after it.
        """
        batch: list[Report] = []
        count = size = 0
        most = min(_MOST_OUTCOMES, max(MAX_OUTCOMES, self._outcomes // 2))
        plain = self.plain
        while self._waiting:
            report = self._waiting[0]
            if plain and not report.plain:
                break
            count += len(report.outcomes)
            size += report.size
            if batch and (report.tries or count > most or size > MAX_BYTES):
                break
            batch.append(self._waiting.popleft())
            self._size -= report.size
            self._outcomes -= len(report.outcomes)
            if report.tries:
                break
        if len(self._waiting) <= MAX_WAITING // 2 and self._size <= MAX_WAITING_BYTES // 2:
            self._has_room.set()
        return batch

    @property
    def full(self) -> bool:
        """Whether there is no room for more."""
        return not self._has_room.is_set()

    async def wait_for_room(self) -> None:
        """Return as soon as there is room for more."""
        await self._has_room.wait()


def _size(outcome: Outcome) -> int:
    size = 200
    for _, value in outcome.outputs:
        size += len(value)
    if outcome.wait is not None:
        size += len(outcome.wait.form)
    if outcome.error is not None:
        size += len(outcome.error.message) + len(outcome.error.traceback)
    return size
