"""Sends the runs of one client over one stream: a message carries all waiting runs, at a third of the cost of calls."""

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

import grpc

from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb
from tradewind.client.calls import CLOSED
from tradewind.client.errors import TimedOut, Unavailable
from tradewind.client.refusals import error_from, error_of_status
from tradewind.client.traces import traceparent

_Method: TypeAlias = grpc.aio.StreamStreamMultiCallable[pb.StreamRunsRequest, pb.StreamRunsResponse]
_Call: TypeAlias = grpc.aio.StreamStreamCall[pb.StreamRunsRequest, pb.StreamRunsResponse]
_MESSAGE_BYTES = 2 * 1024 * 1024


class RunStream:
    """Opens the stream with the first run, and again after it breaks; runs under way then fail as a call would."""

    def __init__(self, method: Callable[[], _Method], address: str) -> None:
        self._method = method
        self._address = address
        self._numbers = itertools.count(1)
        self._pending: dict[int, asyncio.Future[pb.RunFlowResponse]] = {}
        self._outbox: deque[pb.StreamedRun] = deque()
        self._wake = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None

    async def run(self, request: pb.RunFlowRequest, timeout: float) -> pb.RunFlowResponse:
        """Run a cycle; the answer must come within `timeout` seconds. Raises TradewindError."""
        loop = asyncio.get_running_loop()
        if self._serving is None:
            self._serving = loop.create_task(self._serve(self._method()()))
        number = next(self._numbers)
        answer: asyncio.Future[pb.RunFlowResponse] = loop.create_future()
        self._pending[number] = answer
        self._outbox.append(pb.StreamedRun(number=number, request=request, traceparent=traceparent()))
        self._wake.set()
        timer = loop.call_later(timeout, self._time_out, answer)
        try:
            return await answer
        finally:
            timer.cancel()
            self._pending.pop(number, None)

    async def close(self) -> None:
        """End the stream; runs under way fail here but go on at the server."""
        serving = self._serving
        if serving is not None:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            if self._serving is serving:
                # The task was cancelled before it ran its first line.
                self._fail_pending(_closed)

    async def _serve(self, call: _Call) -> None:
        writing = asyncio.get_running_loop().create_task(self._write(call))
        try:
            while isinstance(response := await call.read(), pb.StreamRunsResponse):
                for each in response.answers:
                    self._resolve(each)
            self._fail_pending(lambda: Unavailable(f"{self._address} closed the stream of runs"))
        except grpc.aio.AioRpcError as error:
            cause = error
            self._fail_pending(lambda: error_from(cause, self._address, "StreamRuns"))
        except asyncio.CancelledError:
            self._fail_pending(_closed)
            raise
        finally:
            writing.cancel()
            call.cancel()

    async def _write(self, call: _Call) -> None:
        # If the call ends during a write, the reader learns of it, with the reason.
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while True:
                self._wake.clear()
                while self._outbox:
                    await call.write(self._next_message())
                await self._wake.wait()

    def _next_message(self) -> pb.StreamRunsRequest:
        message = pb.StreamRunsRequest()
        size = 0
        while self._outbox and (not size or size + self._outbox[0].ByteSize() <= _MESSAGE_BYTES):
            run = self._outbox.popleft()
            size += run.ByteSize()
            if run.number in self._pending:
                message.runs.append(run)
        return message

    def _resolve(self, answer: pb.StreamedRunAnswer) -> None:
        future = self._pending.get(answer.number)
        if future is None or future.done():
            return
        if answer.HasField("response"):
            future.set_result(answer.response)
        else:
            future.set_exception(error_of_status(answer.error_status))

    def _time_out(self, future: asyncio.Future[pb.RunFlowResponse]) -> None:
        if not future.done():
            future.set_exception(TimedOut(f"{self._address} did not answer RunFlow in time"))

    def _fail_pending(self, error: Callable[[], Exception]) -> None:
        """Fail the runs under way; the next run opens another stream."""
        self._serving = None
        self._outbox.clear()
        for future in self._pending.values():
            if not future.done():
                future.set_exception(error())


def _closed() -> Exception:
    return RuntimeError(CLOSED)
