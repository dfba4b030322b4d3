"""Following a server's stream across lost connections."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from tradewind.client.absence import Absence
from tradewind.client.calls import Calls
from tradewind.client.errors import Unavailable
from tradewind.server.backoff import Backoff

PATIENCE = 60.0
"""The least time, in seconds, for which a stream that was connected once tries to reconnect."""
_PAUSES_S = (0.05, 2.0)

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response")
State = TypeVar("State")


async def reopened(
    calls: Calls, open_stream: Callable[[], AsyncGenerator[Response, None]]
) -> AsyncGenerator[Response, None]:
    """Yield what comes over a stream, opening another whenever it ends.

    Raises Unavailable when the server stays away, and any other error that it answers with.
    """
    absence, backoff = Absence(), Backoff(*_PAUSES_S)
    while True:
        absence.stream_opening()
        retry_after = 0.0
        try:
            async with aclosing(open_stream()) as responses:
                async for response in responses:
                    absence.received()
                    backoff.reset()
                    yield response
        except Unavailable as error:
            away_s = absence.stream_broken(error)
            if away_s >= max(calls.patience, PATIENCE if absence.met else 0.0):
                raise
            if not away_s:
                backoff.reset()
            retry_after = error.retry_after
        await asyncio.sleep(max(retry_after, backoff.next_s()))


async def follow(
    calls: Calls,
    method: Callable[[], grpc.aio.UnaryStreamMultiCallable[Request, Response]],
    request: Request,
    read: Callable[[Response], State],
    ended: Callable[[State], bool],
    resume: Callable[[Request, Response], None] = lambda _request, _response: None,
) -> AsyncGenerator[State, None]:
    """Yield each state once, up to the one that has ended.

    The server sends the present state whenever the stream is opened, so a lost connection loses only states in
    between; it loses none when `resume` changes the request to continue after a response. Raises what `reopened` does.
    """
    last: State | None = None
    async with aclosing(reopened(calls, lambda: calls.stream(method(), request))) as responses:
        async for response in responses:
            resume(request, response)
            state = read(response)
            if state != last:
                last = state
                yield state
            if ended(state):
                return
