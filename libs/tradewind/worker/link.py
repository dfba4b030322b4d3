"""The link of a worker to its node task manager: what a stream and a called worker have in common."""

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import grpc

from tradewind.worker.channel import explain
from tradewind.worker.errors import WorkerRefused
from tradewind.worker.executor import Executor
from tradewind.worker.identity import Identity
from tradewind.worker.outbox import Outbox

if TYPE_CHECKING:
    from tradewind.api.node_task_manager.v1.node_task_manager_service_pb2_grpc import NodeTaskManagerServiceAsyncStub

logger = logging.getLogger("tradewind.worker")

MAX_REFUSALS = 5
"""How many refusals in a row, for reasons that waiting does not cure, make the worker give up."""

_REFUSALS = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
)


class Link(ABC):
    """Brings node tasks to an executor and sends what its outbox holds."""

    def __init__(
        self,
        stub: "NodeTaskManagerServiceAsyncStub",
        identity: Identity,
        executor: Executor,
        outbox: Outbox,
        trouble: str,
    ) -> None:
        """`trouble` is the sentence to log when it does not get through, without the reason."""
        self._stub = stub
        self._identity = identity
        self._executor = executor
        self._outbox = outbox
        self._draining = False
        self._finishing = False
        self._troubles = Troubles(trouble)
        self.connected = asyncio.Event()
        """Set while node tasks may come."""

    @abstractmethod
    async def run(self) -> None:
        """Keep the link up until finished. Raises WorkerError when this worker is refused."""

    @abstractmethod
    def drain(self) -> None:
        """Take no more node tasks."""

    async def finish(self) -> None:
        """End once everything is sent and acknowledged; `run` returns then."""
        await self._outbox.flushed()
        self._finishing = True
        self._outbox.wake()


class Troubles:
    """Trouble between a worker and its node task manager, logged once until something succeeds again."""

    def __init__(self, message: str) -> None:
        """`message` is the sentence to log, without the reason."""
        self._message = message
        self.logged = False
        """Whether it was logged, and nothing has succeeded since."""
        self.refusals = 0
        """How many refusals there were in a row."""

    def note(self, error: grpc.aio.AioRpcError) -> None:
        """Log the trouble unless it is logged already. Raises WorkerRefused at the fifth refusal in a row."""
        if error.code() in _REFUSALS:
            self.refusals += 1
            if self.refusals >= MAX_REFUSALS:
                raise WorkerRefused(f"the node task manager refuses this worker: {explain(error)}")
        self.log_once(explain(error))

    def log_once(self, reason: str) -> None:
        """Log the trouble unless it is logged already."""
        if not self.logged:
            self.logged = True
            logger.warning("%s: %s", self._message, reason)
