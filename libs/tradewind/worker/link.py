"""How a worker is tied to its node task manager: what a stream and a worker that is called have in common."""

import asyncio
from typing import Protocol


class Link(Protocol):
    """Brings node tasks to an executor and takes what its outbox has to say."""

    connected: asyncio.Event
    """Set while node tasks may come."""

    async def run(self) -> None:
        """Be there until finished. Raises WorkerError when this worker is refused."""
        ...

    def drain(self) -> None:
        """Take no more."""
        ...

    async def finish(self) -> None:
        """End once everything is said and acknowledged; `run` returns then."""
        ...
