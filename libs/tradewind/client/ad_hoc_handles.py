"""Handles: the id of an ad-hoc task or of a batch, with what can be done with it."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tradewind.client.batches import BatchProgress, BatchRecord, BatchStatus
from tradewind.client.errors import BatchFailed, TaskFailed, TimedOut
from tradewind.client.logs import LogLine
from tradewind.client.node_tasks import NodeTaskRecord, NodeTaskStatus
from tradewind.client.task_events import WatchedTask
from tradewind.client.wire import Seconds, seconds_of

if TYPE_CHECKING:
    from tradewind.client.client import Client

Record = TypeVar("Record")


class _Watched(ABC, Generic[Record]):
    """What a handle last heard, and hearing the rest."""

    record: Record | None

    @abstractmethod
    def watch(self) -> AsyncGenerator[Record, None]:
        """Yield it as it is and with every change, until it has ended."""

    async def _until_ended(self, name: str, timeout: Seconds | None) -> Record:
        seconds = None if timeout is None else seconds_of(timeout)
        try:
            async with asyncio.timeout(seconds), aclosing(self.watch()) as states:
                async for record in states:
                    self.record = record
        except TimeoutError:
            raise TimedOut(f"{name} has not ended after {seconds:g} s") from None
        assert self.record is not None
        return self.record


class TaskHandle(_Watched[NodeTaskRecord]):
    """An ad-hoc task by its id, `task:<id>`; `record` is what was last heard of it.

    `warnings` say what may keep it waiting, as it was when it was submitted.
    """

    def __init__(
        self, client: "Client", task_id: str, *, record: NodeTaskRecord | None = None, warnings: tuple[str, ...] = ()
    ) -> None:
        self._client = client
        self.task_id = task_id
        self.record = record
        self.warnings = warnings

    def __repr__(self) -> str:
        return f"TaskHandle({self.task_id!r})"

    async def get(self) -> NodeTaskRecord:
        """Return the task as it is now. Raises NotFound."""
        self.record = await self._client.get_task(self.task_id)
        return self.record

    async def progress(self) -> tuple[int, str]:
        """Return how far the node says that it is, 0 to 100, and what it said with it. Raises NotFound."""
        task = await self.get()
        return (100 if task.status is NodeTaskStatus.COMPLETED else task.progress), task.message

    def watch(self, *, after: str = "") -> AsyncGenerator[WatchedTask, None]:
        """Yield it as it is and with every change, until it has ended, as Client.watch_task. Raises NotFound."""
        return self._client.watch_task(self.task_id, after=after)

    def logs(self) -> AsyncIterator[LogLine]:
        """Yield what the node logged, oldest first. Raises NotFound."""
        return self._client.list_task_logs(self.task_id)

    async def cancel(self, *, reason: str = "") -> NodeTaskRecord:
        """Skip it, or ask it to stop; return it as it is now. Raises NotFound."""
        self.record = await self._client.cancel_task(self.task_id, reason=reason)
        return self.record

    async def wait(self, timeout: Seconds | None = None) -> NodeTaskRecord:
        """Return it once it has ended, however it did. Raises TimedOut when it has not after `timeout`."""
        return await self._until_ended(self.task_id, timeout)

    async def result(self, timeout: Seconds | None = None) -> Mapping[str, Any]:
        """Wait until it has completed and return what it emitted, by handle.

        Raises TaskFailed when it ended in any other way, TimedOut when it has not ended after `timeout`.
        """
        task = await self.wait(timeout)
        if task.status is not NodeTaskStatus.COMPLETED:
            raise TaskFailed(task)
        return task.outputs


class BatchHandle(_Watched[BatchRecord]):
    """A batch by its id; `record` is what was last heard of it.

    `warnings` say what may keep it waiting, as it was when it was submitted.
    """

    def __init__(
        self, client: "Client", batch_id: str, *, record: BatchRecord | None = None, warnings: tuple[str, ...] = ()
    ) -> None:
        self._client = client
        self.batch_id = batch_id
        self.record = record
        self.warnings = warnings

    def __repr__(self) -> str:
        return f"BatchHandle({self.batch_id!r})"

    async def get(self) -> BatchRecord:
        """Return the batch as it is now. Raises NotFound."""
        self.record = await self._client.get_batch(self.batch_id)
        return self.record

    async def progress(self) -> BatchProgress:
        """Return how far it is now. Raises NotFound."""
        return (await self.get()).progress

    def watch(self) -> AsyncGenerator[BatchRecord, None]:
        """Yield it as it is and with every change, until it has ended. Raises NotFound."""
        return self._client.watch_batch(self.batch_id)

    def items(self) -> AsyncIterator[NodeTaskRecord]:
        """Yield its items in order, with their outputs where they have ended. Raises NotFound."""
        return self._client.list_batch_results(self.batch_id)

    def logs(self) -> AsyncIterator[LogLine]:
        """Yield what its items logged, oldest first. Raises NotFound."""
        return self._client.list_task_logs(self.batch_id)

    async def cancel(self, *, reason: str = "") -> BatchRecord:
        """Skip what waits and ask what runs to stop; return it as it is now. Raises NotFound."""
        self.record = await self._client.cancel_batch(self.batch_id, reason=reason)
        return self.record

    async def wait(self, timeout: Seconds | None = None) -> BatchRecord:
        """Return it once all of its items have ended. Raises TimedOut when they have not after `timeout`."""
        return await self._until_ended(f"batch {self.batch_id}", timeout)

    async def result(self, timeout: Seconds | None = None) -> list[Mapping[str, Any]]:
        """Wait until every item has completed and return what each emitted, by handle, in the order of the batch.

        Raises BatchFailed when some ended in any other way, TimedOut when it has not ended after `timeout`.
        """
        batch = await self.wait(timeout)
        items = [item async for item in self.items()]
        if batch.status is not BatchStatus.COMPLETED:
            raise BatchFailed(batch, items)
        return [item.outputs for item in items]
