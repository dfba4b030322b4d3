"""A called worker as its caller sees it: what it holds, and whether it takes more."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from tradewind.node_task_manager.domain.called import CalledWorker, RefusalBackoff
from tradewind.node_task_manager.ports.work import Held
from tradewind.node_task_manager.use_cases.called_line import CalledLine
from tradewind.node_task_manager.use_cases.connected_worker import ConnectedWorker


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
