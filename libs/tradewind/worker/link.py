"""How a worker is tied to its node task manager: what a stream and a worker that is called have in common."""

import asyncio
import logging
from typing import Protocol

import grpc

from tradewind.worker.channel import explain
from tradewind.worker.errors import WorkerRefused

logger = logging.getLogger("tradewind.worker")

MAX_REFUSALS = 5
"""Refusals in a row, for a reason that waiting does not cure, before the worker gives up."""

_REFUSALS = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
)


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


class Troubles:
    """What went wrong between a worker and its node task manager, told once until something goes well again."""

    def __init__(self, told: str) -> None:
        """`told` is the sentence for a person, without the reason."""
        self._said = told
        self.told = False
        """Whether it was said, and nothing has gone well since."""
        self.refusals = 0
        """How many there were in a row."""

    def note(self, error: grpc.aio.AioRpcError) -> None:
        """Say it unless it was said. Raises WorkerRefused at the fifth refusal in a row."""
        if error.code() in _REFUSALS:
            self.refusals += 1
            if self.refusals >= MAX_REFUSALS:
                raise WorkerRefused(f"the node task manager refuses this worker: {explain(error)}")
        if not self.told:
            self.told = True
            logger.warning("%s: %s", self._said, explain(error))
