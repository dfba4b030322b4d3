"""A worker that says much and reads nothing is not heard on for ever."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.waiting import until
from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.node_task_manager.ports.work import Held
from tradewind.node_task_manager.rpc import outgoing_line
from tradewind.node_task_manager.rpc.work_stream import WorkStream
from tradewind.node_task_manager.use_cases.report import Report
from tradewind.node_task_manager.use_cases.workers import ConnectedWorker

TOKENS = [f"0~task:none{place}~1~none" for place in range(100)]


class Connections:
    """Knows no lease: whatever a worker names is lost."""

    shards = frozenset({0})

    def __init__(self) -> None:
        self.heard = 0
        self.closed = False

    async def open(self, worker: ConnectedWorker, held: Any, welcome: Any) -> None:
        welcome(1)

    async def hear(
        self, worker: ConnectedWorker, sequence: int, _outcomes: Any, _back: Any, renewed: Sequence[tuple[int, Held]]
    ) -> None:
        self.heard += 1
        worker.line.lose(0, [(held, "the lease lapsed") for _, held in renewed])

    def refresh(self, worker: ConnectedWorker) -> None:
        pass

    def close(self, worker: ConnectedWorker) -> None:
        self.closed = True


class Call:
    """Sends as much as is taken, and reads the first answer only when it is told to."""

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


async def test_a_worker_that_reads_nothing_is_heard_until_its_answers_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outgoing_line, "MAX_WAITING_BYTES", 50_000)
    connections: Any = Connections()
    call: Any = Call()
    notes: Any = None
    serving = asyncio.create_task(WorkStream(connections, notes, 30_000, 10_000).serve(call))
    await until(lambda: connections.heard > 1, "it is heard")
    before = 0
    while before < connections.heard:
        before = connections.heard
        for _ in range(20):
            await asyncio.sleep(0)
    assert 10 < before < 50
    call.reads.set()
    await until(lambda: connections.heard > 2 * before, "it is heard again as soon as it reads")
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert connections.closed


def test_what_is_named_counts_for_how_much_may_wait() -> None:
    """Otherwise nothing but messages would be counted, of which each may name thousands."""
    worker: Any = None
    held = [Held("task:none", 1, "none")] * 1000
    assert Report(worker, renew=True, held=held).size == Report(worker, given_back=held).size == 100_000
