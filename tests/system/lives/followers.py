"""Watchers of ad-hoc tasks, batches and nodes of cycles in a life, through lost connections and restarts of servers.

In the end:

1. Each has got the end, or its task, batch or node is gone.
2. Each has got events in order, without a gap unless its flow was deleted, and nothing after the end. Items of a batch
   that have ended stay ended.
3. Each watcher of an ad-hoc task has got every event from its first one on.

Where the store of the node task managers loses writes, only 1 holds.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tradewind.client import BatchRecord, Client, NotFound, TradewindError, WatchedTask


@dataclass(eq=False)
class _Task:
    """A node task that is followed, and what has come of it."""

    id: str
    client: Client
    states: list[WatchedTask] = field(default_factory=list)
    over: bool = False

    @property
    def position(self) -> str:
        return next((state.event_id for state in reversed(self.states) if state.event_id), "")

    @property
    def event_ids(self) -> list[str]:
        return [state.event_id for state in self.states if state.event_id]


@dataclass(eq=False)
class _Batch:
    """A batch that is followed, and what has come of it."""

    id: str
    client: Client
    states: list[BatchRecord] = field(default_factory=list)
    over: bool = False


class Followers:
    """All watchers of tasks, batches and nodes."""

    def __init__(self) -> None:
        self._tasks: list[_Task] = []
        self._batches: list[_Batch] = []
        self._following: set[asyncio.Task[None]] = set()
        self.redriven: set[str] = set()
        """The runs of node tasks that were redriven: what had ended goes on."""

    def follow_task(self, task_id: str, client: Client) -> None:
        """Follow an ad-hoc task of the client's user, or a node of a cycle, from now on."""
        self._tasks.append(task := _Task(task_id, client))
        self._begin(self._follow(task, lambda: client.watch_task(task_id, after=task.position)))

    def follow_batch(self, batch_id: str, client: Client) -> None:
        """Follow a batch of the client's user from now on."""
        self._batches.append(batch := _Batch(batch_id, client))
        self._begin(self._follow(batch, lambda: client.watch_batch(batch_id)))

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Stop following in the end."""
        try:
            yield
        finally:
            for task in self._following:
                task.cancel()
            await asyncio.gather(*self._following, return_exceptions=True)

    async def violations(self, deleted: Collection[str], *, loses_writes: bool) -> list[str]:
        """Return a sentence for everything that is not as it must be.

        Of flows that were `deleted`, others may have taken the names of runs and of their nodes.
        """
        followed: list[_Task | _Batch] = [*self._tasks, *self._batches]
        found = [f"the watcher of {each.id} has not got its end" for each in followed if not each.over]
        if loses_writes:
            return found
        for task in self._tasks:
            found += _disorder_of_task(task, replaced=task.id.partition(":")[0] in deleted)
            if task.id.startswith("task:") and task.states:
                found += await self._missed(task)
        for batch in self._batches:
            if batch.id not in self.redriven:
                found += _disorder_of_batch(batch)
        return found

    async def _missed(self, task: _Task) -> list[str]:
        events = [state.event_id async for state in task.client.watch_task(task.id, after="0-0") if state.event_id]
        expected = [event_id for event_id in events if place_of(event_id) >= place_of(task.event_ids[0])]
        return [] if task.event_ids == expected else [f"the watcher of {task.id} got {task.event_ids} of {events}"]

    def _begin(self, following: Coroutine[Any, Any, None]) -> None:
        self._following.add(asyncio.ensure_future(following))

    async def _follow(self, followed: _Task | _Batch, watch: Callable[[], AsyncIterator[Any]]) -> None:
        while not followed.over:
            try:
                async for state in watch():
                    followed.states.append(state)
                followed.over = True
            except NotFound:
                followed.over = True
            except TradewindError:
                # No server is there for long.
                await asyncio.sleep(1)


def _disorder_of_task(task: _Task, *, replaced: bool) -> Iterator[str]:
    places = [place_of(event_id) for event_id in task.event_ids]
    if places != sorted(set(places)):
        yield f"the watcher of {task.id} got {task.event_ids}, which is out of order"
    if any(state.gap for state in task.states) and not replaced:
        yield f"the watcher of {task.id} got a gap"
    if any(state.status.ended for state in task.states[:-1]):
        yield f"the watcher of {task.id} got {[str(state.status) for state in task.states]}"


def _disorder_of_batch(batch: _Batch) -> Iterator[str]:
    ended = [state.progress.total - state.progress.queued - state.progress.running for state in batch.states]
    if ended != sorted(ended):
        yield f"the watcher of {batch.id} got that {ended} items had ended"
    if any(state.ended for state in batch.states[:-1]):
        yield f"the watcher of {batch.id} got {[str(state.status) for state in batch.states]}"


def place_of(event_id: str) -> tuple[int, ...]:
    """Return a place in a stream that can be compared."""
    return tuple(map(int, event_id.split("-")))
