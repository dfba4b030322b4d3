"""Running a worker, and how it leaves: when told to, by signals, without a server, or with stuck threads."""

import asyncio
import signal
import threading
from types import FrameType

import grpc
import pytest

from tests.ports import free_port
from tests.rpc.worker.conftest import Waiting, double
from tests.rpc.worker.engine import Engine
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.api.registry.v1 import registry_service_pb2
from tradewind.worker import Worker, WorkerError, node, stay, threads
from tradewind.worker.errors import SessionReplaced


async def test_stopping_worker_finishes_or_gives_back_nodes_and_deregisters(engine: Engine, waiting: Waiting) -> None:
    finishing = threading.Event()

    @node("finishes")
    def finishes() -> str:
        finishing.wait(10)
        return "done"

    serves = Worker([waiting.node, finishes], address=engine.address, worker_id="w1", grace=1.5)
    serving = asyncio.create_task(serves.serve())
    session = await engine.session()
    session.assign("waits", "t1")
    session.assign("finishes", "t2")
    await waiting.until_begun("t1")
    serves.stop()
    await until(lambda: any(request.draining for request in session.requests), "the worker says that it leaves")
    await until(lambda: any(beat.draining for beat in engine.beats), "it tells the registry, too")
    session.assign("waits", "t3")
    await until(lambda: session.given_back == ["t3"], "what comes too late is given back at once")
    finishing.set()
    await serving

    assert sorted(session.given_back) == ["t1", "t3"]
    assert [completion.token for completion in session.completions] == ["t2"]
    assert waiting.stop_reasons == ["the worker is leaving"]
    assert (serves.running, session.half_closed) == (0, True)
    assert [request.worker_id for request in engine.deregistered] == ["w1"]


async def test_idle_worker_gives_back_what_was_on_its_way_when_it_left(engine: Engine) -> None:
    engine.acknowledging = False
    async with Worker([double], address=engine.address) as worker:
        session = await engine.session()
        worker.stop()
        await until(lambda: [(each.draining, each.renew) for each in session.requests] == [(True, True)], "it leaves")
        session.assign("double", "t1")
        await until(lambda: session.given_back == ["t1"], "what crossed its message is given back")
        session.acknowledge()

    assert session.half_closed


async def test_worker_can_be_stopped_from_another_thread(engine: Engine) -> None:
    worker = Worker([double], address=engine.address)
    serving = threading.Thread(target=lambda: asyncio.run(worker.serve(), debug=True), daemon=True)
    serving.start()
    await engine.session()
    worker.stop()
    await until(lambda: not serving.is_alive(), "it has left")

    assert len(engine.deregistered) == 1
    worker.stop()


async def test_run_is_refused_within_event_loop_or_other_thread(engine: Engine) -> None:
    worker = Worker([double], address=engine.address)
    with pytest.raises(WorkerError, match="await serve"):
        worker.run()
    with pytest.raises(WorkerError, match="await serve"):
        await asyncio.to_thread(worker.run)


def test_run_restores_signal_handlers() -> None:
    def handle(number: int, frame: FrameType | None) -> None: ...

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, handle) for number in numbers]
    try:
        worker = Worker([double], address=f"127.0.0.1:{free_port()}")
        worker.stop()
        worker.run()
        assert [signal.getsignal(number) for number in numbers] == [handle, handle]
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


async def test_stopping_without_a_server_does_not_hang(
    engine: Engine, waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stay, "FLUSH_TIMEOUT", 0.1)
    leaving = Worker([waiting.node], address=engine.address, grace=0.05)
    serving = asyncio.create_task(leaving.serve())
    session = await engine.session()
    session.assign("waits", "t1")
    await waiting.until_begun("t1")
    await engine.stop()
    leaving.stop()
    async with asyncio.timeout(20):
        await serving

    assert waiting.stop_reasons == ["the worker is leaving"]


async def test_worker_that_reconnects_while_leaving_reports_it(engine: Engine, waiting: Waiting) -> None:
    serves = Worker([waiting.node], address=engine.address)
    serving = asyncio.create_task(serves.serve())
    session = await engine.session()
    session.assign("waits", "t1")
    await waiting.until_begun("t1")
    serves.stop()
    await until(lambda: session.requests, "the worker says that it leaves")
    session.end()
    second = await engine.session(2)
    waiting.go_on.set()
    await serving

    assert (second.hello.hello.capacity, second.hello.draining) == (1, True)
    assert second.requests[0].draining
    assert [completion.token for completion in second.completions] == ["t1"]


@pytest.mark.parametrize("drained", [False, True])
async def test_leaving_worker_that_is_replaced_ends_at_once(engine: Engine, waiting: Waiting, drained: bool) -> None:
    engine.beat_seconds = 0.01
    serves = Worker([waiting.node], address=engine.address, grace=600)
    serving = asyncio.create_task(serves.serve())
    session = await engine.session()
    session.assign("waits", "t1")
    await waiting.until_begun("t1")
    if drained:
        engine.beat_answer = registry_service_pb2.HeartbeatResponse(drain=True)
    else:
        serves.stop()
    await until(lambda: any(request.draining for request in session.requests), "the worker says that it leaves")
    session.end(grpc.StatusCode.FAILED_PRECONDITION, "SESSION_REPLACED")
    with pytest.raises(SessionReplaced):
        await asyncio.wait_for(serving, 10)

    assert waiting.stop_reasons == ["the worker is closed"]


async def test_worker_can_serve_only_once(engine: Engine) -> None:
    async with Worker([double], address=engine.address) as serves:
        with pytest.raises(WorkerError, match="a worker can serve only once"):
            await serves.serve()


async def test_worker_leaves_when_too_many_threads_are_stuck(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "STUCK_AFTER", 0)
    end, begun = threading.Event(), threading.Semaphore(0)

    @node("stuck")
    def stuck() -> None:
        begun.release()
        end.wait(30)

    serving = asyncio.create_task(Worker([stuck], address=engine.address, stuck_thread_limit=2, grace=0.1).serve())
    session = await engine.session()
    session.assign("stuck", "t1", "t2", "t3")
    for _ in range(3):
        await until(lambda: begun.acquire(blocking=False), "a node runs")
    for token in ("t1", "t2"):
        termination = work_pb2.NodeTaskTermination(token=token)
        termination.grace.FromMilliseconds(10)
        session.send(work_pb2.WorkResponse(terminations=[termination]))

    with pytest.raises(WorkerError, match=r"2 threads of this worker never ended .* ctx\.stop_requested"):
        await serving
    assert sorted(failure.token for failure in session.failures if failure.terminated) == ["t1", "t2"]
    assert session.given_back == ["t3"]
    assert len(engine.deregistered) == 1
    end.set()
