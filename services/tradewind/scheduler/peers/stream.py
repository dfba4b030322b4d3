"""A stream to another service, and how it breaks."""

import asyncio
from typing import Any, Generic, TypeVar

import grpc

from tradewind.scheduler.peers.calls import unavailable
from tradewind.scheduler.ports.peers import PeerUnavailable

Request = TypeVar("Request")
Response = TypeVar("Response")

_ENDED = (grpc.aio.AioRpcError, asyncio.InvalidStateError)
"""The exceptions that reading from, or writing to, a call that has ended raises."""


class PeerStream(Generic[Request, Response]):
    """A bidirectional call; one message is written at a time."""

    def __init__(self, peer: str, call: Any) -> None:
        self._peer = peer
        self._call = call
        self._writing = asyncio.Lock()

    @property
    def ended(self) -> bool:
        """Whether either side has ended the call."""
        return bool(self._call.done())

    async def write(self, request: Request) -> None:
        """Send a message. Raises PeerUnavailable when the stream has ended."""
        async with self._writing:
            try:
                await self._call.write(request)
            except _ENDED as error:
                raise self._lost(error) from error

    async def read(self) -> Response:
        """Return the next message. Raises PeerUnavailable when the stream ends."""
        try:
            response = await self._call.read()
        except _ENDED as error:
            raise self._lost(error) from error
        if response is grpc.aio.EOF:
            raise PeerUnavailable(self._peer, "it ended the stream")
        message: Response = response
        return message

    async def close(self) -> None:
        """End the call."""
        self._call.cancel()

    def _lost(self, error: grpc.aio.AioRpcError | asyncio.InvalidStateError) -> PeerUnavailable:
        if isinstance(error, grpc.aio.AioRpcError):
            return unavailable(self._peer, error.code(), error.details() or "")
        return PeerUnavailable(self._peer, str(error))
