"""The stream on which runs are submitted: one call per submission would cost more than the submission itself."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from tradewind.api.node_task_manager.v1 import component_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.scheduler.peers.calls import failure
from tradewind.scheduler.peers.stream import PeerStream
from tradewind.scheduler.ports.peers import PeerUnavailable
from tradewind.server.statuses import code_of, status_from

_TIMEOUT_S = 10.0
_USE_S = 1.0
"""How long a stream is used before the next request opens another, so that replicas take turns, as with plain calls."""

_Stream: TypeAlias = PeerStream[pb2.StreamSubmissionsRequest, pb2.StreamSubmissionsResponse]


class SubmissionStream:
    """Submits one request at a time, over a stream that is opened when there is something to submit."""

    def __init__(self, peer: str, open_call: Callable[[], Any]) -> None:
        self._peer = peer
        self._open_call = open_call
        self._turn = asyncio.Lock()
        self._stream: _Stream | None = None
        self._use_until = 0.0
        self._number = 0

    async def submit(self, request: pb2.StreamSubmissionsRequest) -> Sequence[component_pb2.SubmitResult]:
        """Return an answer for each run; submitting runs again is safe.

        Raises PeerRefused when one of the runs is at fault, PeerUnavailable when the peer cannot be reached, or does
        not answer within 10 s.
        """
        try:
            async with asyncio.timeout(_TIMEOUT_S), self._turn:
                response = await self._submit(request)
        except TimeoutError:
            raise PeerUnavailable(self._peer, f"no answer within {_TIMEOUT_S:g} s") from None
        if response.HasField("error_status"):
            status = status_from(response.error_status)
            raise failure(self._peer, code_of(status), status.message)
        return response.response.results

    async def close(self) -> None:
        """End the stream; a caller that waits for an answer is cancelled."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.close()

    async def _submit(self, request: pb2.StreamSubmissionsRequest) -> pb2.StreamSubmissionsResponse:
        stream, now = self._stream, asyncio.get_running_loop().time()
        if stream is not None and not stream.ended and now < self._use_until:
            # If the stream breaks, the replica at its other end has left; another one may answer now.
            with suppress(PeerUnavailable):
                return await self._exchange(stream, request)
        await self.close()
        stream = self._stream = PeerStream(self._peer, self._open_call())
        self._use_until = now + _USE_S
        return await self._exchange(stream, request)

    async def _exchange(self, stream: _Stream, request: pb2.StreamSubmissionsRequest) -> pb2.StreamSubmissionsResponse:
        self._number = request.number = self._number + 1
        try:
            await stream.write(request)
            response = await stream.read()
            if response.number != request.number:
                raise PeerUnavailable(
                    self._peer, f"it answered request {response.number} instead of request {request.number}"
                )
        except BaseException:
            # The next message on the stream would be the answer to this request.
            await self.close()
            raise
        return response
