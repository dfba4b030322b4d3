"""The way out to a called worker: node tasks given to it during a call go with the next call."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from tradewind.node_task_manager.ports.work import Held, Termination
from tradewind.node_task_manager.ports.workers import Answer, Ready, WorkerCalls
from tradewind.server.ending import end_tasks
from tradewind.server.side_tasks import SideTasks

MAX_AT_ONCE = 100
MAX_BYTES = 2 * 1024 * 1024
MAX_WAITING_BYTES = 4 * MAX_BYTES
_HANDED_S = 5.0
_TERMINATE_PAUSES_S = (0.2, 1.0, 0.0)


class CalledLine:
    """A WorkerLine; `answered` gets the answer to node tasks, `recheck` is called when leases may have ended."""

    def __init__(
        self, calls: WorkerCalls, answered: Callable[[Sequence[Ready], Answer], None], recheck: Callable[[], None]
    ) -> None:
        self._calls = calls
        self._answered = answered
        self._recheck = recheck
        self._waiting: deque[Ready] = deque()
        self._under_way: Sequence[Ready] = ()
        self._bytes = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self._pushing: asyncio.Task[None] | None = None
        self._terminating = SideTasks()
        self._closed_for = ""

    @property
    def full(self) -> bool:
        return self._bytes > MAX_WAITING_BYTES

    @property
    def busy(self) -> bool:
        """Whether node tasks wait, or are being handed over."""
        return self._pushing is not None

    async def writable(self) -> None:
        await self._writable.wait()

    def assign(self, ready: Sequence[Ready]) -> None:
        if self._closed_for:
            self._answered(ready, Answer(refused=self._closed_for))
            return
        self._waiting += ready
        self._bytes += sum(each.size for each in ready)
        if self.full:
            self._writable.clear()
        if self._pushing is None:
            self._pushing = asyncio.get_running_loop().create_task(self._push())

    def terminate(self, shard: int, terminations: Sequence[Termination]) -> None:
        self._terminating.begin(self._terminate(shard, list(terminations)))

    def report_losses(self, shard: int, losses: Sequence[tuple[Held, str]], sequence: int | None = None) -> None:
        """Do nothing: the worker learns it when it renews."""

    def expect(self, sequence: int, parts: int, *, awaited: bool = False) -> None:
        """Do nothing: no messages come this way."""

    def acknowledge(self, sequence: int) -> None:
        """Do nothing: no messages come this way."""

    def resync(self) -> None:
        self._recheck()

    def ping(self, number: int) -> None:
        """Do nothing: the worker's heartbeats say whether it is alive."""

    def close(self, reason: str) -> None:
        """Hand over nothing more; waiting node tasks are refused on the worker's behalf."""
        self._closed_for = reason
        left, self._bytes = list(self._waiting), 0
        self._waiting.clear()
        self._writable.set()
        if left:
            self._answered(left, Answer(refused=reason))

    def drop(self) -> list[Ready]:
        """Drop waiting node tasks without an answer; return them, and those that are being handed over."""
        left = [*self._under_way, *self._waiting]
        self._waiting.clear()
        self._bytes = 0
        self._writable.set()
        return left

    async def broken(self) -> None:
        """Return when the connection to the worker is lost."""
        await self._calls.broken()

    async def connected(self, within_s: float) -> bool:
        """Say whether the worker is connected within `within_s`, opening a connection if need be."""
        return await self._calls.connected(within_s)

    async def end(self, timeout_s: float) -> None:
        """Close the connection; a call under way that takes longer than `timeout_s` counts as refused."""
        if self._pushing is not None:
            await asyncio.wait({self._pushing}, timeout=timeout_s)
        await self._calls.close()
        await end_tasks([*self._terminating, *([self._pushing] if self._pushing else [])])

    async def _push(self) -> None:
        try:
            while self._waiting:
                self._under_way = batch = self._next_batch()
                # Stays the answer if the line ends during the call, which cancels it.
                answer = Answer(refused="the call was cut short")
                try:
                    answer = await self._calls.execute(batch)
                finally:
                    self._under_way = ()
                    if not self._waiting:
                        self._pushing = None
                    self._answered(batch, answer)
                if self._pushing is not asyncio.current_task():
                    return
        finally:
            if self._pushing is asyncio.current_task():
                self._pushing = None

    def _next_batch(self) -> list[Ready]:
        batch: list[Ready] = []
        size = 0
        while self._waiting and len(batch) < MAX_AT_ONCE:
            size += self._waiting[0].size
            if batch and size > MAX_BYTES:
                break
            batch.append(self._waiting.popleft())
        self._bytes -= sum(each.size for each in batch)
        if not self.full:
            self._writable.set()
        return batch

    async def _terminate(self, shard: int, terminations: Sequence[Termination]) -> None:
        if self._pushing is not None:
            # The worker does not know the node tasks yet that it is being handed.
            await asyncio.wait({self._pushing}, timeout=_HANDED_S)
        for pause in _TERMINATE_PAUSES_S:
            if await self._calls.terminate(shard, terminations):
                return
            await asyncio.sleep(pause)
