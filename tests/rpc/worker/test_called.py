"""A called worker: what it takes, what it reports, and how it leaves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.ports import free_port
from tests.rpc.worker.engine import Engine, assignment
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import node_task_pb2, work_pb2
from tradewind.api.node_task_manager.v1.node_task_manager_service_pb2 import ReportNodeTasksResponse
from tradewind.api.worker.v1 import worker_service_pb2 as pb2
from tradewind.api.worker.v1.worker_service_pb2_grpc import WorkerServiceStub
from tradewind.server.statuses import reason_of
from tradewind.worker import Context, Worker, WorkerError, node

if TYPE_CHECKING:
    from tradewind.api.worker.v1.worker_service_pb2_grpc import WorkerServiceAsyncStub

Status = grpc.StatusCode


@node("double")
async def double(value: int) -> int:
    return 2 * value


@node("hold")
async def hold(ctx: Context) -> None:
    await ctx.progress(30, "holding")
    ctx.log("on hold")
    await asyncio.Event().wait()


@asynccontextmanager
async def called(engine: Engine, **options: Any) -> AsyncIterator[tuple[Worker, "WorkerServiceAsyncStub"]]:
    """Run a worker that listens; yield it with a stub for the address that it has registered."""
    options = {"worker_id": "w1", "listen": "127.0.0.1:0", "grace": 0, **options}
    worker = Worker([double, hold], address=engine.address, **options)
    async with worker, grpc.aio.insecure_channel(engine.registered[-1].worker.api_url) as channel:
        yield worker, WorkerServiceStub(channel)


async def execute(stub: "WorkerServiceAsyncStub", node_type: str, *tokens: str, **fields: Any) -> list[str]:
    """Hand over node tasks; return the accepted ones."""
    request = pb2.ExecuteRequest(assignments=[assignment(node_type, token, **fields) for token in tokens])
    return list((await stub.Execute(request)).accepted_tokens)


async def refused(call: Any) -> grpc.aio.AioRpcError:
    """Return why a call was refused."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value


async def test_called_worker_registers_address_and_reports_outcomes(engine: Engine) -> None:
    async with called(engine) as (_, stub):
        assert await execute(stub, "double", "t1", "t2", config_json='{"value": 4}') == ["t1", "t2"]
        await until(lambda: sum(len(each.completions) for each in engine.reports) == 2, "both are reported")
        outputs = {each.token: each.outputs[0].value_json for report in engine.reports for each in report.completions}
        assert outputs == {"t1": "8", "t2": "8"}
        assert engine.reports[0].worker_id == "w1"
        # Without its config the node would fail: what the worker has reported is reported again, and not run.
        assert await execute(stub, "double", "t1") == ["t1"]
        await until(lambda: sum(len(each.completions) for each in engine.reports) == 3, "it is reported again")
    assert not engine.sessions
    assert not any(report.failures for report in engine.reports)
    assert engine.deregistered


async def test_called_worker_renews_reports_progress_and_drops_lost_leases(engine: Engine) -> None:
    async with called(engine) as (worker, stub):
        request = pb2.ExecuteRequest(assignments=[assignment("hold", "t1")], renew_interval=Duration(nanos=20_000_000))
        await stub.Execute(request)
        await until(lambda: sum(list(each.held_tokens) == ["t1"] for each in engine.reports) >= 3, "it renews")
        progress = [each for report in engine.reports for each in report.progress]
        lines = [each.message for report in engine.reports for each in report.logs]
        assert [(each.token, each.progress, each.message) for each in progress] == [("t1", 30, "holding")]
        assert lines == ["on hold"]

        loss = work_pb2.LeaseLoss(token="t1", reason="the lease lapsed")
        engine.report_answer = ReportNodeTasksResponse(losses=[loss])
        await until(lambda: worker.running == 0, "it lets go of what it has lost")
    assert not any(each.failures or each.completions or each.give_back_tokens for each in engine.reports)


@pytest.mark.parametrize("way", ["by call", "by answer to renewal"])
async def test_called_worker_stops_node(engine: Engine, way: str) -> None:
    async with called(engine) as (_, stub):
        request = pb2.ExecuteRequest(assignments=[assignment("hold", "t1")], renew_interval=Duration(nanos=20_000_000))
        await stub.Execute(request)
        mark = node_task_pb2.StopMark(reason="enough", by="ann")
        stop = work_pb2.NodeTaskTermination(token="t1", stop=mark)
        if way == "by call":
            other = work_pb2.NodeTaskTermination(token="t9", stop=mark)
            answer = await stub.Terminate(pb2.TerminateRequest(terminations=[stop, other]))
            assert list(answer.unknown_tokens) == ["t9"]
        else:
            engine.report_answer = ReportNodeTasksResponse(terminations=[stop])
        await until(lambda: any(each.failures for each in engine.reports), "it is reported")
        (failure,) = [each for report in engine.reports for each in report.failures]
        assert (failure.token, failure.terminated) == ("t1", True)


async def test_called_worker_accepts_no_more_than_its_capacity(engine: Engine) -> None:
    async with called(engine, capacity=2) as (_, stub):
        assert await execute(stub, "hold", "t1", "t2", "t3") == ["t1", "t2"]
        error = await refused(execute(stub, "hold", "t4"))
        assert (error.code(), error.details()) == (
            Status.RESOURCE_EXHAUSTED,
            "this worker runs 2 of 2 node tasks",
        )
        assert await execute(stub, "hold", "t1") == ["t1"]


@pytest.mark.parametrize(
    ("method", "request_bytes", "code"),
    [
        ("Execute", b"\xff\xff", Status.INVALID_ARGUMENT),
        ("Terminate", b"\x0a\x05x", Status.INVALID_ARGUMENT),
        ("Nothing", b"", Status.UNIMPLEMENTED),
    ],
)
async def test_malformed_request_is_refused_with_reason(
    engine: Engine, method: str, request_bytes: bytes, code: grpc.StatusCode
) -> None:
    async with called(engine) as (_, stub):
        async with grpc.aio.insecure_channel(engine.registered[-1].worker.api_url) as channel:
            call: Any = channel.unary_unary(f"/tradewind.api.worker.v1.WorkerService/{method}")
            error = await refused(call(request_bytes))
        assert (error.code(), reason_of(error)) == (
            code,
            "INVALID_INPUT" if code is Status.INVALID_ARGUMENT else "METHOD_UNKNOWN",
        )
        assert await execute(stub, "double", "t1", config_json='{"value": 4}') == ["t1"]


async def test_extreme_durations_are_clamped(engine: Engine) -> None:
    """A lease that would be renewed without a pause, a start too far away for any timer, a grace of centuries."""
    most, least = Duration(seconds=1 << 60), Duration(seconds=-(1 << 60))
    async with called(engine) as (worker, stub):
        later = assignment("double", "t1", start_in=most)
        later.deadline.FromSeconds(253_402_300_799)
        for interval in (Duration(nanos=1), most, least):
            await stub.Execute(pb2.ExecuteRequest(assignments=[later], renew_interval=interval))
        assert worker.running == 1
        await stub.Execute(pb2.ExecuteRequest(assignments=[assignment("hold", "t2")]))
        stops = [work_pb2.NodeTaskTermination(token=token, grace=most) for token in ("t1", "t2")]
        await stub.Terminate(pb2.TerminateRequest(terminations=stops))
        await until(lambda: sum(len(each.failures) for each in engine.reports) == 2, "both have ended")


async def test_failed_report_is_sent_again(engine: Engine) -> None:
    engine.report_fault = Status.UNAVAILABLE
    async with called(engine) as (_, stub):
        await execute(stub, "double", "t1", config_json='{"value": 4}')
        await until(lambda: engine.report_faults, "a report has failed")
        engine.report_fault = None
        await until(lambda: any(each.completions for each in engine.reports), "the report arrives")
    assert [each.token for report in engine.reports for each in report.completions] == ["t1"]


async def test_leaving_worker_refuses_work_and_gives_back_running_nodes(engine: Engine) -> None:
    released = asyncio.Event()

    @node("slow")
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await released.wait()

    worker = Worker([slow], address=engine.address, listen="127.0.0.1:0", grace=0, worker_id="w1")
    serving = asyncio.create_task(worker.serve())
    await until(lambda: engine.registered, "it is registered")
    async with grpc.aio.insecure_channel(engine.registered[-1].worker.api_url) as channel:
        stub, health = WorkerServiceStub(channel), cast(Any, health_pb2_grpc.HealthStub(channel))
        check = health_pb2.HealthCheckRequest(service="tradewind.api.worker.v1.WorkerService")
        assert (await health.Check(check)).status == health_pb2.HealthCheckResponse.SERVING
        await execute(stub, "slow", "t1")
        await until(lambda: worker.running == 1, "it runs")
        worker.stop()
        error = await refused(execute(stub, "slow", "t2"))
        assert (error.code(), error.details()) == (Status.UNAVAILABLE, "this worker is leaving")
        assert (await health.Check(check)).status == health_pb2.HealthCheckResponse.NOT_SERVING
        released.set()
        await serving
    assert [token for report in engine.reports for token in report.give_back_tokens] == ["t1"]


async def test_listening_on_used_address_fails(engine: Engine) -> None:
    async with called(engine):
        taken = engine.registered[-1].worker.api_url
        with pytest.raises(WorkerError, match=f"port {taken.rpartition(':')[2]} is in use by process"):
            await Worker([double], address=engine.address, listen=taken).serve()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"api_url": "host:1"}, "are only for a worker with listen: give that as well"),
        ({"listen": "0.0.0.0:9000"}, "set api_url to the one that others can reach"),
        ({"listen": "[::]:9000"}, "set api_url to the one that others can reach"),
        ({"listen": "9000"}, "host:port"),
        ({"listen": "127.0.0.1:65536"}, "host:port"),
    ],
)
def test_inconsistent_addresses_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Worker([double], **options)


async def test_worker_that_was_given_up_while_it_started_has_left() -> None:
    port = free_port()
    for _ in range(2):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3), Worker([double], address="127.0.0.1:1", listen=f"127.0.0.1:{port}"):
                pass


async def test_registered_address_may_differ_from_listening_one(engine: Engine) -> None:
    worker = Worker([double], address=engine.address, listen="0.0.0.0:0", api_url="https://workers.test:9000")
    async with worker:
        assert engine.registered[-1].worker.api_url == "https://workers.test:9000"
