"""Progress and log lines of running node tasks, written in the background and in batches."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress

import structlog

from tradewind.node_task_manager.ports.reading import Line, Progress
from tradewind.node_task_manager.ports.work import Outcome, OutcomeKind
from tradewind.node_task_manager.use_cases.shard import Shard
from tradewind.server.batching import Batcher

_log = structlog.get_logger(__name__)
_MAX_WAITING = 50_000
_MAX_WAITING_BYTES = 32 * 1024 * 1024
_KEEP_PROGRESS = {OutcomeKind.FAILED, OutcomeKind.TERMINATED, OutcomeKind.SUSPENDED}
_PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)

Note = Progress | Line


class Notes:
    """Takes notes without keeping anybody waiting.

    While the store is away, notes wait for up to 40 s. Beyond 50 000 of them, or 32 MiB, they are dropped and counted.
    """

    def __init__(self, shards: Mapping[int, Shard]) -> None:
        self._batchers = {number: Batcher(self._writer(shard), max_items=200) for number, shard in shards.items()}
        self._latest: dict[int, asyncio.Future[None]] = {}
        self._unwritten_progress = 0
        self._bytes = 0
        self._closing = asyncio.Event()
        self.dropped = 0

    def add(self, progress: Sequence[tuple[int, Progress]], lines: Sequence[tuple[int, Line]]) -> None:
        """Keep notes, each with its shard."""
        notes: list[tuple[int, Note]] = [*progress, *lines]
        for shard, note in notes:
            batcher = self._batchers[shard]
            if batcher.waiting >= _MAX_WAITING or self._bytes >= _MAX_WAITING_BYTES or self._closing.is_set():
                self.dropped += 1
            else:
                self._bytes += len(note.message)
                self._unwritten_progress += isinstance(note, Progress)
                self._latest[shard] = batcher.submit(note)

    @property
    def has_progress(self) -> bool:
        """Whether progress has yet to be written."""
        return self._unwritten_progress > 0

    async def write_before(self, outcomes: Iterable[tuple[int, Outcome]], given_back: Collection[object]) -> None:
        """Wait until notes are written that would not be kept once these attempts have ended, or are given back.

        Of what holds no lease no progress is kept, which matters unless it completed, and no line, unless it failed.
        """
        progress = self.has_progress and any(each.kind in _KEEP_PROGRESS for _, each in outcomes)
        if (given_back or progress) and self._latest:
            await asyncio.wait(self._latest.values())

    async def close(self) -> None:
        """Write waiting notes, unless the store is away."""
        self._closing.set()
        await asyncio.gather(*(batcher.close() for batcher in self._batchers.values()))

    def _writer(self, shard: Shard) -> Callable[[list[Note]], Awaitable[Sequence[None]]]:
        async def write(notes: list[Note]) -> list[None]:
            await self._write(shard, notes)
            self._bytes -= sum(len(note.message) for note in notes)
            self._unwritten_progress -= sum(isinstance(note, Progress) for note in notes)
            return [None] * len(notes)

        return write

    async def _write(self, shard: Shard, notes: Sequence[Note]) -> None:
        progress = [note for note in notes if isinstance(note, Progress)]
        lines = [note for note in notes if isinstance(note, Line)]
        for pause in (*_PAUSES_S, None):
            try:
                await shard.tasks.record(progress, lines)
                return
            except Exception as error:
                if pause is None or self._closing.is_set():
                    self.dropped += len(notes)
                    _log.warning("notes_dropped", count=len(notes), error=error)
                    return
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._closing.wait()
