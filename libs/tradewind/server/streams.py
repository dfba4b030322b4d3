"""Open long streams: running both directions at once, and ending them when the server leaves."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from tradewind.server.ending import end_tasks
from tradewind.server.faults import Unavailable
from tradewind.server.interception import Behavior, Context


async def run_both(context: Context, reading: Coroutine[Any, Any, None], writing: Coroutine[Any, Any, None]) -> None:
    """Read and write until either side ends; raise what ended it, the reader's error first.

    The headers are sent first. gRPC would send them with the first message, and an error that comes while that is under
    way could not be sent: the client would wait for good.
    """
    try:
        await context.send_initial_metadata(())
    except BaseException:
        reading.close()
        writing.close()
        raise
    tasks = [asyncio.create_task(reading), asyncio.create_task(writing)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        await end_tasks(tasks)


class OpenStreams:
    """Cancels every open stream on `drain`; each then answers that the server is leaving."""

    def __init__(self) -> None:
        self._open: set[asyncio.Task[object]] = set()
        self._draining = False

    @contextmanager
    def opened(self, *, late: bool = False) -> Iterator[None]:
        """Register the stream that runs inside. Raises Unavailable when the server is leaving.

        With `late`, a stream that has come when the server was leaving already goes on.
        """
        if self._draining and not late:
            raise _draining()
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if self._draining:
                raise _draining() from None
            raise
        finally:
            self._open.discard(task)

    def drain(self) -> None:
        """End every stream and refuse new ones."""
        self._draining = True
        for task in self._open:
            task.cancel()


class StockStreams:
    """Ends the streams of gRPC's own services (health Watch, reflection) when the server drains.

    They would hold up its stop until the grace period is over; streams of Tradewind's services are in OpenStreams.
    """

    def __init__(self) -> None:
        self._drained = asyncio.Event()

    def drain(self) -> None:
        """End the open streams, and new streams at once, with UNAVAILABLE."""
        self._drained.set()

    def until_drained(self, behavior: Behavior) -> Behavior:
        """Return `behavior` wrapped so that it ends at the drain."""

        async def call(request: Any, context: Context) -> None:
            running = asyncio.ensure_future(behavior(request, context))
            drained = asyncio.ensure_future(self._drained.wait())
            try:
                await asyncio.wait({running, drained}, return_when=asyncio.FIRST_COMPLETED)
                if not running.done():
                    raise _draining()
                await running
            finally:
                await end_tasks([running, drained])

        return call


def _draining() -> Unavailable:
    return Unavailable("DRAINING", "this server is shutting down; connect again", retry_after_s=0.1)
