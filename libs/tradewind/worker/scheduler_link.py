"""Asks the scheduler for the variables that nodes keep."""

import asyncio
from concurrent.futures import Future

import grpc

from tradewind.server.backoff import Backoff
from tradewind.server.statuses import reason_of
from tradewind.worker.channel import explain
from tradewind.worker.errors import MemoryFault

_SERVICE = "/tradewind.api.scheduler.v1.SchedulerService/"
_CALL_TIMEOUT = 5.0
_PATIENCE = 60.0
"""Seconds for which a call is repeated while the scheduler is away: gRPC needs 40 s to notice a lost machine."""
_PAUSES = (0.05, 1.0)
_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)
"""A stopping server ends calls that it has not begun with CANCELLED; a hanging server never answers."""


class SchedulerLink:
    """Memories over a channel; must be made in the event loop that the channel belongs to."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._loop = asyncio.get_running_loop()
        # Requests and answers are bytes: processes for nodes hand them over serialized.
        self._methods: dict[str, grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]] = {
            name: channel.unary_unary(_SERVICE + name, request_serializer=None, response_deserializer=None)
            for name in ("GetMemory", "UpdateMemory")
        }

    def ask(self, method: str, request: bytes) -> "Future[bytes]":
        """Call the scheduler; see Memories."""
        return asyncio.run_coroutine_threadsafe(self._ask(method, request), self._loop)

    async def _ask(self, method: str, request: bytes) -> bytes:
        deadline, backoff = self._loop.time() + _PATIENCE, Backoff(*_PAUSES)
        while True:
            pause = backoff.next_s()
            try:
                answer: bytes = await self._methods[method](request, timeout=_CALL_TIMEOUT)
                return answer
            except grpc.aio.AioRpcError as error:
                if error.code() not in _AWAY or self._loop.time() + pause > deadline:
                    raise _fault(error, len(request)) from None
            await asyncio.sleep(pause)


def _fault(error: grpc.aio.AioRpcError, size: int) -> MemoryFault:
    reason = reason_of(error)
    if not reason and error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
        # gRPC itself refuses a message that is longer than the server reads.
        return MemoryFault.too_large(size)
    return MemoryFault(reason or error.code().name, explain(error))
