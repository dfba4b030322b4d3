"""gRPC's own tasks, which wait until the core reports the ends of streams."""

import asyncio
from typing import Any

_QUIET_S = 0.2


def reports() -> "set[asyncio.Task[Any]]":
    """Return the tasks of gRPC's that wait for the end of a stream in this loop."""
    return {task for task in asyncio.all_tasks() if _name(task).endswith("._handle_status_once_received")}


async def ends_reported() -> None:
    """Wait until the core has reported the ends of the streams that were cancelled in this loop.

    It reports each to the loop of its call. If that is closed by then, another loop of the process, which happens to
    read the report, logs "Event loop is closed". Streams that go on end the wait after a moment without any report.
    """
    waiting = reports()
    while waiting:
        done, waiting = await asyncio.wait(waiting, timeout=_QUIET_S, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            return


def _name(task: "asyncio.Task[Any]") -> str:
    return getattr(task.get_coro(), "__qualname__", "")
