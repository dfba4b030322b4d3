"""Work that goes on after the call that caused it has been answered."""

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import Any

import structlog

from tradewind.server.side_tasks import SideTasks

_log = structlog.get_logger(__name__)


class Background:
    """Runs coroutines on the side. Errors are only logged, since a loop repeats all work that matters anyway."""

    def __init__(self) -> None:
        self._tasks = SideTasks()

    def begin(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        """Start `work`; `name` is its name in the log."""
        _ = self.task(work, name)

    def task(self, work: Coroutine[Any, Any, Any], name: str) -> "asyncio.Task[Any]":
        """Start `work` and return its task, which returns None instead of raising an error."""

        async def guarded() -> Any:
            try:
                return await work
            except Exception as error:
                _log.warning("background_work_failed", what=name, error=error)
                return None

        return self._tasks.task(guarded(), Context())

    async def stop(self) -> None:
        """End the work that is still running."""
        await self._tasks.end()
