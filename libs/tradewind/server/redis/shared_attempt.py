"""One attempt at something for all who need it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from redis.exceptions import ConnectionError

Result = TypeVar("Result")


class SharedAttempt(Generic[Result]):
    """Makes attempts in a task of their own, one at a time: the end of the first caller does not end everybody's."""

    def __init__(self, attempt: Callable[[], Coroutine[Any, Any, Result]]) -> None:
        self._attempt = attempt
        self._task: asyncio.Task[Result] | None = None

    async def __call__(self) -> Result:
        """Wait for the attempt under way, or for a new one; raises what it raises, ConnectionError once closed."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._attempt())
            # If every caller has given up, nobody else retrieves an error.
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        task = self._task
        await asyncio.wait([task])
        if task.cancelled():
            raise ConnectionError("the client was closed")
        return task.result()

    async def aclose(self) -> None:
        """End the attempt that is under way, and its callers' waiting."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
