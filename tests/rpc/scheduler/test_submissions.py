"""The scheduler's stream of submissions, to a server that the test controls: each request gets its own answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.rpc.status_pb2 import Status

from tests.waiting import until
from tradewind.api.node_task_manager.v1 import component_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2_grpc as pb2_grpc
from tradewind.scheduler.peers import submissions
from tradewind.scheduler.peers.submissions import SubmissionStream
from tradewind.scheduler.ports.peers import PeerRefused, PeerUnavailable
from tradewind.server.bootstrap import Server
from tradewind.server.channels import open_channel
from tradewind.server.errors import ErrorTable

Context = grpc.aio.ServicerContext[Any, Any]
Behavior = Callable[[pb2.StreamSubmissionsRequest, Context], Awaitable[pb2.StreamSubmissionsResponse]]


async def echo(message: pb2.StreamSubmissionsRequest, _context: Context) -> pb2.StreamSubmissionsResponse:
    """Answer with the runs' own flows, which tell which request the answer is for."""
    answer = pb2.StreamSubmissionsResponse(number=message.number)
    for run in message.request.runs:
        answer.response.results.add(outcome=component_pb2.SUBMIT_OUTCOME_REFUSED, reason=run.flow_id)
    return answer


async def leave(_message: pb2.StreamSubmissionsRequest, context: Context) -> pb2.StreamSubmissionsResponse:
    """End the stream instead of answering."""
    await context.abort(grpc.StatusCode.UNAVAILABLE, "leaving")
    raise AssertionError


async def never_answer(_message: pb2.StreamSubmissionsRequest, _context: Context) -> pb2.StreamSubmissionsResponse:
    """Never answer."""
    await asyncio.Event().wait()
    raise AssertionError


async def answer_another(message: pb2.StreamSubmissionsRequest, _context: Context) -> pb2.StreamSubmissionsResponse:
    """Answer a request that was never made."""
    return pb2.StreamSubmissionsResponse(number=message.number + 1)


def fail(code: grpc.StatusCode) -> Behavior:
    """Answer with an error."""

    async def failing(message: pb2.StreamSubmissionsRequest, _context: Context) -> pb2.StreamSubmissionsResponse:
        status = Status(code=code.value[0], message="no good")
        return pb2.StreamSubmissionsResponse(number=message.number, error_status=status.SerializeToString())

    return failing


class Scripted(pb2_grpc.NodeTaskManagerServiceServicer):
    """Handles each request with the next function of its script, or answers it when the script is empty."""

    names = ()
    tracing = None
    errors = ErrorTable()

    def __init__(self) -> None:
        self.script: list[Behavior] = []
        self.requested: list[str] = []
        """The first flow of each request."""
        self.opened = 0
        self.open = 0

    async def StreamSubmissions(
        self, request_iterator: AsyncIterator[pb2.StreamSubmissionsRequest], context: Context
    ) -> AsyncIterator[pb2.StreamSubmissionsResponse]:
        self.opened += 1
        self.open += 1
        try:
            async for message in request_iterator:
                self.requested.append(message.request.runs[0].flow_id)
                yield await (self.script.pop(0) if self.script else echo)(message, context)
        finally:
            self.open -= 1

    def bind(self, server: grpc.aio.Server) -> None:
        pb2_grpc.add_NodeTaskManagerServiceServicer_to_server(self, server)

    async def start(self) -> None:
        """Nothing to begin."""

    async def drain(self) -> None:
        """Nothing to end."""

    async def stop(self) -> None:
        """Nothing to end."""

    async def not_ready(self) -> str | None:
        return None


@pytest_asyncio.fixture
async def server() -> AsyncIterator[tuple[Scripted, Server]]:
    scripted = Scripted()  # type: ignore[abstract]
    server = Server([scripted], drain_s=0.1)
    await server.start()
    yield scripted, server
    await server.stop()


@pytest.fixture
def peer(server: tuple[Scripted, Server]) -> Scripted:
    """The server that runs are submitted to."""
    return server[0]


@pytest_asyncio.fixture
async def stream(server: tuple[Scripted, Server], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SubmissionStream]:
    """The client side, which keeps one stream for as long as it holds."""
    monkeypatch.setattr(submissions, "_USE_S", 3600.0)
    async with open_channel(server[1].address) as channel:
        stub = pb2_grpc.NodeTaskManagerServiceStub(channel)
        stream = SubmissionStream("node task manager", stub.StreamSubmissions)
        yield stream
        await stream.close()


async def submit(stream: SubmissionStream, *flows: str) -> list[str]:
    """Submit a run of each of these flows, and return the flows in the answer."""
    message = pb2.StreamSubmissionsRequest()
    for flow in flows:
        message.request.runs.add(flow_id=flow)
    return [result.reason for result in await stream.submit(message)]


async def test_concurrent_submissions_get_their_own_answers(stream: SubmissionStream, peer: Scripted) -> None:
    assert await asyncio.gather(*(submit(stream, f"f{at}", "g") for at in range(50))) == [
        [f"f{at}", "g"] for at in range(50)
    ]
    assert (peer.requested, peer.opened) == ([f"f{at}" for at in range(50)], 1)


@pytest.mark.parametrize("at_fault", [leave, answer_another])
async def test_request_under_way_when_the_stream_breaks_is_sent_again(
    stream: SubmissionStream, peer: Scripted, at_fault: Behavior
) -> None:
    peer.script = [echo, at_fault]
    assert await submit(stream, "a") == ["a"]
    assert await submit(stream, "b") == ["b"]
    assert (peer.requested, peer.opened) == (["a", "b", "b"], 2)


async def test_stream_that_breaks_at_its_first_request_makes_the_peer_unavailable(
    stream: SubmissionStream, peer: Scripted
) -> None:
    peer.script = [leave]
    with pytest.raises(PeerUnavailable) as caught:
        await submit(stream, "a")
    assert caught.value.detail == "UNAVAILABLE: leaving"
    assert await submit(stream, "a") == ["a"]


async def test_unreachable_address_makes_the_peer_unavailable() -> None:
    async with open_channel("127.0.0.1:1") as channel:
        stub = pb2_grpc.NodeTaskManagerServiceStub(channel)
        with pytest.raises(PeerUnavailable):
            await submit(SubmissionStream("node task manager", stub.StreamSubmissions), "a")


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, PeerRefused),
        (grpc.StatusCode.UNAVAILABLE, PeerUnavailable),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, PeerUnavailable),
        (grpc.StatusCode.UNIMPLEMENTED, PeerUnavailable),
    ],
)
async def test_error_of_one_request_keeps_the_stream_open(
    stream: SubmissionStream, peer: Scripted, code: grpc.StatusCode, raised: type[Exception]
) -> None:
    peer.script = [echo, fail(code)]
    await submit(stream, "a")
    with pytest.raises(raised):
        await submit(stream, "b")
    assert await submit(stream, "c") == ["c"]
    assert (peer.requested, peer.opened) == (["a", "b", "c"], 1)


async def test_wait_for_an_answer_times_out(
    stream: SubmissionStream, peer: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await submit(stream, "a") == ["a"]
    peer.script = [never_answer]
    monkeypatch.setattr(submissions, "_TIMEOUT_S", 0.05)
    with pytest.raises(PeerUnavailable) as caught:
        await submit(stream, "b")
    assert caught.value.detail == "no answer within 0.05 s"
    monkeypatch.undo()
    peer.script.clear()
    assert await submit(stream, "c") == ["c"]


async def test_answer_to_a_cancelled_request_reaches_no_other(stream: SubmissionStream, peer: Scripted) -> None:
    peer.script = [never_answer]
    giving_up = asyncio.ensure_future(submit(stream, "a"))
    await until(lambda: peer.requested == ["a"], "the request has come")
    giving_up.cancel()
    await asyncio.gather(giving_up, return_exceptions=True)
    assert await submit(stream, "b") == ["b"]
    await until(lambda: peer.open == 1, "the first stream has ended")


async def test_stream_is_reopened_after_its_lifetime(
    stream: SubmissionStream, peer: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submissions, "_USE_S", 0.0)
    assert [await submit(stream, each) for each in "abc"] == [["a"], ["b"], ["c"]]
    assert peer.opened == 3
    await until(lambda: peer.open == 1, "the streams before have ended")


async def test_closing_ends_the_stream_on_the_server_too(stream: SubmissionStream, peer: Scripted) -> None:
    await submit(stream, "a")
    await stream.close()
    await until(lambda: peer.open == 0, "the stream has ended")
