"""Tasks that run beside the code that started them."""

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, TypeVar

from tradewind.server.ending import end_tasks

Result = TypeVar("Result")


class SideTasks(set["asyncio.Task[Any]"]):
    """The tasks that have not ended yet: an event loop alone does not keep its tasks from the garbage collector."""

    def begin(self, work: Coroutine[Any, Any, Any]) -> None:
        """Begin `work`, whose result and exception nobody needs."""
        _ = self.task(work)

    def task(self, work: Coroutine[Any, Any, Result], context: Context | None = None) -> "asyncio.Task[Result]":
        """Begin `work`, in `context` or else in a copy of the caller's, and return its task."""
        task = asyncio.get_running_loop().create_task(work, context=context)
        self.add(task)
        task.add_done_callback(self.discard)
        return task

    async def settle(self) -> None:
        """Return when all tasks have ended, including those begun in the meantime; their exceptions stay with them."""
        while self:
            # Not `gather`: from Python 3.12 on it returns at once if all are done, before they leave this set.
            await asyncio.wait(self)

    async def end(self) -> None:
        """Cancel the tasks and return when they have ended; what they raise is dropped."""
        await end_tasks(self)
