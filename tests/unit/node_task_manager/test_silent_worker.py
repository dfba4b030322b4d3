"""A worker that sends much and reads nothing is not listened to for ever."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.contexts import WithoutHeaders
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.ports.work import Held
from tradewind.node_task_manager.rpc import outgoing_line
from tradewind.node_task_manager.rpc.work_stream import WorkStream
from tradewind.node_task_manager.use_cases.connected_worker import UNANSWERED_PINGS, ConnectedWorker
from tradewind.node_task_manager.use_cases.notes import Notes
from tradewind.node_task_manager.use_cases.report import Report
from tradewind.server.clock import SystemClock

TOKENS = [f"0~task:none{place}~1~none" for place in range(100)]


class Connections:
    """Knows no leases: every lease that a worker names is lost."""

    shards = frozenset({0})

    def __init__(self) -> None:
        self.handled = 0
        self.closed = False
        self.workers: list[ConnectedWorker] = []
        self.refreshed = 0

    async def open(self, worker: ConnectedWorker, held: Any, welcome: Any) -> None:
        self.workers.append(worker)
        welcome(1)

    async def handle_message(
        self,
        worker: ConnectedWorker,
        sequence: int,
        _outcomes: Any,
        _back: Any,
        renewed: Sequence[tuple[int, Held]] | None,
        *,
        awaited: bool,
    ) -> None:
        self.handled += 1
        worker.line.report_losses(0, [(held, "the lease lapsed") for _, held in renewed or ()])

    def refresh(self, worker: ConnectedWorker) -> None:
        self.refreshed += 1

    def answers_pings_again(self, worker: ConnectedWorker) -> None:
        self.refresh(worker)

    def close(self, worker: ConnectedWorker) -> None:
        self.closed = True


class Call(WithoutHeaders):
    """Sends as much as is accepted, and reads the first answer only when told to."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self._greeted = False

    async def read(self) -> work_pb2.WorkRequest:
        if not self._greeted:
            self._greeted = True
            return work_pb2.WorkRequest(hello=work_pb2.WorkerHello(worker_id="silent", node_types=["none"]))
        await asyncio.sleep(0)
        return work_pb2.WorkRequest(sequence=2, renew=True, held_tokens=TOKENS)

    async def write(self, _message: work_pb2.WorkResponse) -> None:
        await self.reads.wait()


async def test_requests_are_read_until_unread_answers_fill_the_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outgoing_line, "MAX_WAITING_BYTES", 50_000)
    connections: Any = Connections()
    call: Any = Call()
    unused: Any = None
    stream = WorkStream(connections, Notes({}), Limits(), SystemClock(), unused)
    serving = asyncio.create_task(stream.serve(call))
    await until(lambda: connections.handled > 1, "it is handled")
    before = 0
    while before < connections.handled:
        before = connections.handled
        for _ in range(20):
            await asyncio.sleep(0)
    assert 10 < before < 50
    call.reads.set()
    await until(lambda: connections.handled > 2 * before, "it is handled again as soon as it reads")
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert connections.closed


class Answering(WithoutHeaders):
    """Says hello, then what the test tells it to."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[work_pb2.WorkRequest] = asyncio.Queue()
        self.requests.put_nowait(
            work_pb2.WorkRequest(hello=work_pb2.WorkerHello(worker_id="pong", node_types=["none"]))
        )

    async def read(self) -> work_pb2.WorkRequest:
        return await self.requests.get()

    async def write(self, _message: work_pb2.WorkResponse) -> None:
        pass


@pytest.mark.parametrize(("unanswered", "refreshed"), [(1, 0), (UNANSWERED_PINGS, 0), (UNANSWERED_PINGS + 1, 1)])
async def test_pong_refreshes_only_a_worker_that_was_silent(unanswered: int, refreshed: int) -> None:
    connections: Any = Connections()
    call: Any = Answering()
    unused: Any = None
    stream = WorkStream(connections, Notes({}), Limits(), SystemClock(), unused)
    serving = asyncio.create_task(stream.serve(call))
    await until(lambda: connections.workers, "it has said hello")
    [worker] = connections.workers
    worker.unanswered_pings = unanswered
    call.requests.put_nowait(work_pb2.WorkRequest(sequence=2, pong=7))
    await until(lambda: not worker.unanswered_pings, "it is handled")
    assert (connections.handled, connections.refreshed) == (0, refreshed)
    call.requests.put_nowait(work_pb2.WorkRequest(sequence=3, pong=8, renew=True))
    await until(lambda: connections.handled, "what is said beside an answer is handled")
    assert (worker.unanswered_pings, connections.refreshed) == (0, refreshed)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


def test_held_tokens_count_toward_report_size() -> None:
    """Otherwise only messages would be counted, and each may name thousands of leases."""
    worker: Any = None
    held = [Held("task:none", 1, "none")] * 1000
    assert Report(worker, renew=True, held=held).size == Report(worker, given_back=held).size == 100_000
