"""Handles: the id of an ad-hoc task or a batch, with methods to work with it."""

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
    """The last known record of a handle, and waiting for the final one."""

    record: Record | None

    @abstractmethod
    def watch(self) -> AsyncGenerator[Record, None]:
        """Yield it as it is now and after every change, until it has ended."""

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
    """An ad-hoc task by its id, `task:<id>`; `record` is its last known state.

    `warnings` say what may keep it waiting, as of its submission.
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
        """Return the progress that the node last reported, 0 to 100, and its message. Raises NotFound."""
        task = await self.get()
        return (100 if task.status is NodeTaskStatus.COMPLETED else task.progress), task.message

    def watch(self, *, after: str = "") -> AsyncGenerator[WatchedTask, None]:
        """Yield it as it is now and after every event, until it has ended; see Client.watch_task. Raises NotFound."""
        return self._client.watch_task(self.task_id, after=after)

    def logs(self) -> AsyncIterator[LogLine]:
        """Yield what the node logged, oldest first. Raises NotFound."""
        return self._client.list_task_logs(self.task_id)

    async def cancel(self, *, reason: str = "") -> NodeTaskRecord:
        """Skip the task, or ask it to stop; return it as it is now. Raises NotFound."""
        self.record = await self._client.cancel_task(self.task_id, reason=reason)
        return self.record

    async def wait(self, timeout: Seconds | None = None) -> NodeTaskRecord:
        """Return the task once it has ended in any way. Raises TimedOut when it has not ended after `timeout`."""
        return await self._until_ended(self.task_id, timeout)

    async def result(self, timeout: Seconds | None = None) -> Mapping[str, Any]:
        """Wait until the task has completed and return what it emitted, by handle.

        Raises TaskFailed when it ended in any other way, TimedOut when it has not ended after `timeout`.
        """
        task = await self.wait(timeout)
        if task.status is not NodeTaskStatus.COMPLETED:
            raise TaskFailed(task)
        return task.outputs


class BatchHandle(_Watched[BatchRecord]):
    """A batch by its id; `record` is its last known state.

    `warnings` say what may keep it waiting, as of its submission.
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
        """Return the batch's progress now. Raises NotFound."""
        return (await self.get()).progress

    def watch(self) -> AsyncGenerator[BatchRecord, None]:
        """Yield the batch as it is now and after every change, until it has ended. Raises NotFound."""
        return self._client.watch_batch(self.batch_id)

    def items(self) -> AsyncIterator[NodeTaskRecord]:
        """Yield its items in order, with the outputs of those that have ended. Raises NotFound."""
        return self._client.list_batch_results(self.batch_id)

    def logs(self) -> AsyncIterator[LogLine]:
        """Yield what its items logged, oldest first. Raises NotFound."""
        return self._client.list_task_logs(self.batch_id)

    async def cancel(self, *, reason: str = "") -> BatchRecord:
        """Skip waiting items and ask running ones to stop; return the batch as it is now. Raises NotFound."""
        self.record = await self._client.cancel_batch(self.batch_id, reason=reason)
        return self.record

    async def delete(self) -> None:
        """Remove it, once it has ended, with its results and logs. Raises NotFound, WrongStatus while it is open."""
        await self._client.delete_batch(self.batch_id)

    async def wait(self, timeout: Seconds | None = None) -> BatchRecord:
        """Return the batch once all of its items have ended. Raises TimedOut when they have not after `timeout`."""
        return await self._until_ended(f"batch {self.batch_id}", timeout)

    async def result(self, timeout: Seconds | None = None) -> list[Mapping[str, Any]]:
        """Wait until every item has completed and return what each emitted, by handle, in the order of the batch.

        Raises BatchFailed when an item ended in any other way, TimedOut when the batch has not ended after `timeout`.
        """
        batch = await self.wait(timeout)
        items = [item async for item in self.items()]
        if batch.status is not BatchStatus.COMPLETED:
            raise BatchFailed(batch, items)
        return [item.outputs for item in items]
