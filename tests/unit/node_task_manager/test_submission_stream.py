"""A stream of submissions when the server leaves: requests that have come are answered, no more are awaited."""

import asyncio
from collections import deque
from typing import Any

import grpc
import pytest

from tests.waiting import until
from tradewind.api.node_task_manager.v1 import component_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.node_task_manager.rpc.submission_stream import SubmissionStream
from tradewind.server.errors import ErrorAnswers, ErrorTable
from tradewind.server.faults import Unavailable
from tradewind.server.streams import OpenStreams

ACCEPTED = component_pb2.SubmitResult(outcome=component_pb2.SUBMIT_OUTCOME_ACCEPTED)


class Line:
    """The handler's side of a call; the other side is the test."""

    def __init__(self, *requests: int) -> None:
        self.requests = deque(requests)
        self.answered: list[int] = []
        self.awaited = False
        self._more = asyncio.Event()

    async def read(self) -> Any:
        while not self.requests:
            self.awaited = True
            self._more.clear()
            await self._more.wait()
        number = self.requests.popleft()
        return pb2.StreamSubmissionsRequest(number=number) if number else grpc.aio.EOF

    def send(self, *requests: int) -> None:
        """Send requests with these numbers; 0 is the end."""
        self.requests.extend(requests)
        self._more.set()

    async def write(self, message: pb2.StreamSubmissionsResponse) -> None:
        self.answered.append(message.number)


class Store:
    """Accepts every run, once the test lets it."""

    def __init__(self) -> None:
        self.submitted = 0
        self.let = asyncio.Event()

    async def submit(self, request: pb2.SubmitComponentsRequest, response: pb2.SubmitComponentsResponse) -> None:
        self.submitted += 1
        await self.let.wait()
        response.results.extend(ACCEPTED for _ in request.runs)


def serve(line: Line, store: Store, streams: OpenStreams) -> asyncio.Task[None]:
    stream = SubmissionStream(store.submit, ErrorAnswers(ErrorTable()), streams)
    return asyncio.get_running_loop().create_task(stream.serve(line))  # type: ignore[arg-type]


async def test_idle_stream_ends_when_server_drains() -> None:
    line, store, streams = Line(1), Store(), OpenStreams()
    store.let.set()
    serving = serve(line, store, streams)
    await until(lambda: line.answered == [1], "the request is answered")
    streams.drain()
    with pytest.raises(Unavailable, match="shutting down"):
        await serving


async def test_stream_that_has_sent_nothing_ends_when_server_drains() -> None:
    line, streams = Line(), OpenStreams()
    serving = serve(line, Store(), streams)
    await until(lambda: line.awaited, "the first request is awaited")
    streams.drain()
    with pytest.raises(Unavailable, match="shutting down"):
        await asyncio.wait_for(serving, 5)


async def test_current_request_is_answered_before_draining_ends_the_stream() -> None:
    line, store, streams = Line(1, 2), Store(), OpenStreams()
    serving = serve(line, store, streams)
    await until(lambda: store.submitted, "the request is at hand")
    streams.drain()
    store.let.set()
    with pytest.raises(Unavailable, match="shutting down"):
        await serving
    assert (line.answered, store.submitted) == ([1], 1)


async def test_draining_server_answers_first_request_of_a_new_stream() -> None:
    line, store, streams = Line(7, 8), Store(), OpenStreams()
    store.let.set()
    streams.drain()
    with pytest.raises(Unavailable, match="shutting down"):
        await serve(line, store, streams)
    assert line.answered == [7]


async def test_stream_ends_normally_when_caller_is_done() -> None:
    line, store = Line(1), Store()
    store.let.set()
    serving = serve(line, store, OpenStreams())
    line.send(2, 0)
    await serving
    assert line.answered == [1, 2]
