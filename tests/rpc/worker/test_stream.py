"""The Work stream: work in, outcomes out, and what happens when it breaks."""

import asyncio
import time
from typing import Any

import grpc
import pytest

from tests.rpc.worker.conftest import Waiting, double
from tests.rpc.worker.engine import Engine, assignment
from tests.rpc.worker.process_nodes import pid
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.worker import Context, Node, Worker, link, node, stream
from tradewind.worker.errors import SessionReplaced, WorkerRefused


@node("talks")
def talks(ctx: Context) -> None:
    ctx.progress(50, "half")
    ctx.log.warning("careful")
    raise ValueError("too bad")


async def test_worker_says_hello_and_runs_assignments(engine: Engine) -> None:
    async with Worker([double, talks], address=engine.address, worker_id="w1", capacity=7):
        session = await engine.session()
        session.assign("double", "t1", config_json='{"value": 21}')
        await session.until_completed("t1")

    hello = session.hello.hello
    assert (hello.worker_id, list(hello.node_types), hello.capacity) == ("w1", ["double", "talks"], 7)
    assert (len(hello.incarnation), list(hello.held_tokens), session.hello.sequence) == (32, [], 1)
    assert hello.incarnation == engine.registered[0].worker.incarnation
    completion = session.completions[0]
    assert [(output.handle, output.value_json) for output in completion.outputs] == [("output", "42")]
    assert 0 < completion.duration.ToNanoseconds() < 60e9
    assert [request.sequence for request in session.requests] == list(range(2, len(session.requests) + 2))


@pytest.mark.parametrize(
    ("nodes", "room"), [([pid], 3), ([talks], 5), ([pid, talks], 8), ([talks, double], 100), ([pid, double], 100)]
)
async def test_capacity_without_async_nodes_is_threads_plus_processes(
    engine: Engine, nodes: list[Node[..., Any]], room: int
) -> None:
    async with Worker(nodes, address=engine.address, thread_capacity=5, process_capacity=3):
        assert (await engine.session()).hello.hello.capacity == room


async def test_failures_and_logs_are_reported(engine: Engine) -> None:
    async with Worker([talks], address=engine.address):
        session = await engine.session()
        before = time.time()
        session.assign("talks", "t1")
        session.assign("nowhere", "t2")
        await until(lambda: len(session.failures) == 2, "both have failed")

    failures = {failure.token: failure for failure in session.failures}
    lines = [line for request in session.requests for line in request.logs]
    assert (failures["t1"].error.code, failures["t1"].error.message) == ("NODE_ERROR", "too bad")
    assert "raise ValueError" in failures["t1"].error.traceback
    assert failures["t2"].error.code == "UNKNOWN_NODE_TYPE"
    assert [(line.token, line.level, line.message) for line in lines] == [("t1", "WARNING", "careful")]
    assert before - 1 < lines[0].created_at.ToSeconds() + 1


async def test_simultaneous_outcomes_share_messages(engine: Engine) -> None:
    async with Worker([double], address=engine.address, capacity=1000):
        session = await engine.session()
        tokens = [f"t{index}" for index in range(1000)]
        session.assign("double", *tokens)
        await session.until_completed(*tokens)

    with_completions = [request for request in session.requests if request.completions]
    assert 2 <= len(with_completions) <= 20


async def test_held_or_reported_token_is_not_run_but_reported_again(engine: Engine, waiting: Waiting) -> None:
    async with Worker([waiting.node], address=engine.address):
        session = await engine.session()
        session.assign("waits", "t1", "t2")
        await waiting.until_begun("t1", "t2")
        session.assign("waits", "t1")
        waiting.go_on.set()
        await session.until_completed("t1", "t2")
        session.assign("waits", "t1", "t2", "t3")
        await session.until_completed("t1", "t1", "t2", "t2", "t3")

    assert waiting.begun == ["t1", "t2", "t3"]


async def test_held_tokens_are_named_soon_then_renewed(
    engine: Engine, waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "NAMING_DELAY", 0.3)
    engine.renew_seconds = 0.3
    async with Worker([waiting.node, double], address=engine.address):
        session = await engine.session()
        session.assign("waits", "t1")
        session.assign("double", "t2")
        await until(lambda: session.renewals, "the held token is named")
        named_after = session.renewals[:]
        await until(lambda: len(session.renewals) >= 3, "the lease is renewed again and again")
        waiting.go_on.set()
        await session.until_completed("t1", "t2")
        count = len(session.renewals)
        session.send(work_pb2.WorkResponse(ping=1))
        await until(lambda: session.requests[-1].pong == 1, "the ping is answered")

        assert named_after == [["t1"]]
        assert all(tokens == ["t1"] for tokens in session.renewals)
        assert len(session.renewals) == count


async def test_short_nodes_cause_no_renewal(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "NAMING_DELAY", 0.5)
    engine.renew_seconds = 0.5
    begun = time.monotonic()
    async with Worker([double], address=engine.address):
        session = await engine.session()
        for index in range(5):
            session.assign("double", f"t{index}")
            await until(lambda: len(session.completions) == index + 1, "it is completed")  # noqa: B023
            session.send(work_pb2.WorkResponse(ping=index + 1))
            await until(lambda: session.requests[-1].pong == index + 1, "the ping is answered")  # noqa: B023
        await until(lambda: time.monotonic() - begun > 1.5, "it is past every time to name or renew")

        assert session.renewals == []


async def test_termination_stops_node(engine: Engine, waiting: Waiting) -> None:
    async with Worker([waiting.node], address=engine.address):
        session = await engine.session()
        session.assign("waits", "t1")
        await waiting.until_begun("t1")
        termination = work_pb2.NodeTaskTermination(token="t1")
        termination.stop.reason, termination.stop.by = "market closed", "ada"
        session.send(work_pb2.WorkResponse(terminations=[termination]))
        await until(lambda: session.failures, "the node is reported")

    assert waiting.stop_reasons == ["market closed"]
    assert session.failures[0].terminated
    assert session.failures[0].error.message == "market closed (by ada)"


async def test_assignments_received_after_pause_of_a_lease_are_not_begun(engine: Engine, waiting: Waiting) -> None:
    """Such work may already run elsewhere. Back again, the process names what it held and hears what it has lost."""
    engine.lease_seconds, engine.renew_seconds = 0.3, 0.1
    async with Worker([waiting.node], address=engine.address):
        session = await engine.session()
        session.assign("waits", "held")
        await waiting.until_begun("held")
        time.sleep(0.4)  # noqa: ASYNC251  nothing of this process goes on
        session.assign("waits", "stale")
        again = await engine.session(2)
        assert list(again.hello.hello.held_tokens) == ["held"]
        again.assign("waits", "fresh")
        await waiting.until_begun("held", "fresh")
        waiting.go_on.set()
        await again.until_completed("held", "fresh")


async def test_lost_lease_stops_node_and_drops_its_result(engine: Engine, waiting: Waiting) -> None:
    engine.acknowledging = False
    async with Worker([waiting.node, double], address=engine.address):
        session = await engine.session()
        session.assign("double", "done")
        await session.until_completed("done")
        session.assign("waits", "t1", "t2")
        await waiting.until_begun("t1", "t2")
        losses = [work_pb2.LeaseLoss(token=token, reason="lapsed") for token in ("t1", "done")]
        session.send(work_pb2.WorkResponse(losses=losses))
        await until(lambda: waiting.stop_reasons, "the node hears of it")
        session.end()
        second = await engine.session(2)
        waiting.go_on.set()
        await second.until_completed("t2")
        second.acknowledge()

    assert waiting.stop_reasons == ["lapsed"]
    assert list(second.hello.hello.held_tokens) == ["t2"]
    assert (second.failures, session.failures) == ([], [])


async def test_ping_is_answered(engine: Engine) -> None:
    async with Worker([double], address=engine.address):
        session = await engine.session()
        session.send(work_pb2.WorkResponse(ping=42))
        await until(lambda: [request.pong for request in session.requests] == [42], "the pong comes")


@pytest.mark.parametrize("end", ["error", "normal", "reconnect"])
async def test_nodes_continue_and_outcomes_are_repeated_after_broken_stream(
    engine: Engine, waiting: Waiting, end: str
) -> None:
    engine.acknowledging = False
    async with Worker([waiting.node, double], address=engine.address):
        session = await engine.session()
        session.assign("double", "t1")
        await session.until_completed("t1")
        session.acknowledge()
        session.assign("double", "t2")
        await session.until_completed("t1", "t2")
        session.assign("waits", "t3")
        await waiting.until_begun("t3")
        if end == "error":
            session.end(grpc.StatusCode.UNAVAILABLE, "DRAINING")
        elif end == "normal":
            session.end(grpc.StatusCode.OK)
        else:
            session.send(work_pb2.WorkResponse(reconnect=True))
        second = await engine.session(2)
        await second.until_completed("t2")
        waiting.go_on.set()
        await second.until_completed("t2", "t3")
        second.acknowledge()

    assert sorted(second.hello.hello.held_tokens) == ["t2", "t3"]
    assert second.hello.hello.incarnation == session.hello.hello.incarnation
    assert [request.sequence for request in second.requests][:1] == [2]
    assert waiting.stop_reasons == []


async def test_worker_reconnects_to_restarted_server(engine: Engine, waiting: Waiting) -> None:
    async with Worker([waiting.node], address=engine.address):
        session = await engine.session()
        session.assign("waits", "t1", "t2")
        await waiting.until_begun("t1", "t2")
        await engine.stop()
        waiting.go_on.set()
        await until(lambda: session.ended.is_set(), "the stream is broken")
        await engine.start()
        second = await engine.session(2)
        await second.until_completed("t1", "t2")


async def test_log_lines_survive_a_reconnect(engine: Engine) -> None:
    engine.acknowledging = False
    async with Worker([talks], address=engine.address):
        session = await engine.session()
        session.assign("talks", "t1")
        await until(lambda: session.failures, "the node is reported")
        session.end()
        second = await engine.session(2)
        await until(lambda: second.failures, "it is reported again")
        engine.acknowledging = True
        second.acknowledge()

    assert [line.message for request in second.requests for line in request.logs] == ["careful"]


async def test_missing_welcome_is_logged_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stream, "WELCOME_TIMEOUT", 0.05)
    engine.silent = True
    serves = Worker([double], address=engine.address)
    serving = asyncio.create_task(serves.serve())
    await engine.session(3)
    engine.silent = False
    monkeypatch.setattr(stream, "WELCOME_TIMEOUT", 5)
    await until(lambda: engine.welcomed, "the worker is welcomed")
    assert sum("no answer within 0.05 s" in each.getMessage() for each in caplog.records) == 1
    serves.stop()
    await serving


async def test_replaced_session_ends_worker(engine: Engine, waiting: Waiting) -> None:
    serves = Worker([waiting.node], address=engine.address, worker_id="w1")
    serving = asyncio.create_task(serves.serve())
    session = await engine.session()
    session.assign("waits", "t1")
    await waiting.until_begun("t1")
    session.end(grpc.StatusCode.FAILED_PRECONDITION, "SESSION_REPLACED")

    with pytest.raises(SessionReplaced, match='another process has connected as worker "w1", so this one stops: give'):
        await serving
    assert waiting.stop_reasons == ["the worker is closed"]
    assert [request.incarnation for request in engine.deregistered] == [session.hello.hello.incarnation]
    assert len(engine.sessions) == 1


async def test_repeated_refusal_of_stream_ends_worker(engine: Engine) -> None:
    engine.refusal = (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")

    with pytest.raises(WorkerRefused, match="refuses this worker: INVALID_ARGUMENT: as the test wants"):
        await Worker([double], address=engine.address).serve()
    assert len(engine.sessions) == link.MAX_REFUSALS


async def test_large_inputs_arrive(engine: Engine) -> None:
    text = "x" * 3_000_000

    @node("length")
    async def length(value: str) -> int:
        return len(value)

    async with Worker([length], address=engine.address):
        session = await engine.session()
        large = assignment("length", "t1")
        large.inputs.add(handle="value", values_json=[f'"{text}"'])
        session.send(work_pb2.WorkResponse(assignments=[large] * 2))
        await session.until_completed("t1")

    assert session.completions[0].outputs[0].value_json == "3000000"
