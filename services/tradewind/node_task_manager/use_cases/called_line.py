"""The way out to a called worker: node tasks given to it during a call go with the next call."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tradewind.node_task_manager.domain.called import CalledWorker, RefusalBackoff
from tradewind.node_task_manager.ports.work import Held, Termination
from tradewind.node_task_manager.ports.workers import Answer, Ready, WorkerCalls
from tradewind.node_task_manager.use_cases.workers import ConnectedWorker
from tradewind.server.ending import end_tasks
from tradewind.server.side_tasks import SideTasks

MOST_AT_ONCE = 100
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
        while self._waiting and len(batch) < MOST_AT_ONCE:
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


@dataclass(eq=False)
class CalledConnection(ConnectedWorker):
    """A called worker. This process gives it node tasks while it is `mine` to call, but may stop any of its node tasks.

    `others` are its leases that another process gave, by shard and node task; `incoming` counts node tasks being passed
    on to it. It is `backing_off` while it is left alone after a refusal; then it gets one node task at a time, until it
    accepts one. It gets none while its connection is `broken`, which `watching` notices; if the connection could not be
    restored, it is `lost` until the worker answers. `tried` has, by the nonce of a lease that is not taken yet, the
    workers that did not take the node task before.
    """

    line: CalledLine
    listing: CalledWorker = field(kw_only=True)
    mine: bool = False
    backing_off: bool = False
    broken: bool = False
    lost: bool = False
    watching: asyncio.Task[None] | None = None
    others: set[tuple[int, str]] = field(default_factory=set)
    incoming: int = 0
    tried: dict[str, frozenset[str]] = field(default_factory=dict)
    backoff: RefusalBackoff = field(default_factory=RefusalBackoff)

    called = True

    @property
    def reachable(self) -> bool:
        return self.mine and not self.broken and not self.lost

    @property
    def load(self) -> float:
        """The part of its capacity that is taken."""
        return self._used / max(1, self.capacity)

    @property
    def room(self) -> int:
        return self._room_beyond(self.promised)

    @property
    def accepts(self) -> bool:
        """Whether it may take one more node task, whatever claims under way bring: if it is too much, it refuses."""
        return self._room_beyond(0) > 0

    @property
    def _used(self) -> int:
        return len(self.held) + len(self.others) + self.incoming

    def _room_beyond(self, promised: int) -> int:
        if not self.mine or self.backing_off or self.broken or self.line.full:
            return 0
        room = max(0, self.capacity - self._used - promised)
        if self.backoff.refusals:
            return min(room, 0 if self.line.busy or self.incoming or promised else 1)
        return room

    def release(self, nonce: str) -> None:
        super().release(nonce)
        self.tried.pop(nonce, None)

    def forget(self, shard: int, ended: Sequence[Held]) -> None:
        """Note that these leases have ended."""
        for each in ended:
            self.release(each.nonce)
            self.others.discard((shard, each.task_id))

    def recount(self, shard: int, before: frozenset[str], held: frozenset[str]) -> None:
        """Note that of the node tasks leased to it `before`, only `held` still are."""
        latest = {each.task_id: nonce for nonce, (at, each) in self.held.items() if at == shard}
        for nonce, (at, each) in list(self.held.items()):
            if at != shard or each.task_id not in before:
                continue
            if each.task_id not in held or latest[each.task_id] != nonce:
                self.release(nonce)
        self.others -= {(shard, task_id) for task_id in before - held}

    def believed_held(self, shard: int) -> frozenset[str]:
        """Return the node tasks of a shard that the worker is believed to hold."""
        mine = {each.task_id for at, each in self.held.values() if at == shard}
        return frozenset(mine | {task_id for at, task_id in self.others if at == shard})
