"""What a worker tells the registry."""

import asyncio
import json
import math
import os

import grpc
import pytest

from tests.ports import free_port
from tests.rpc.worker.engine import Engine, started_engine
from tests.waiting import until
from tradewind.api.registry.v1 import registry_service_pb2
from tradewind.api.registry.v1.registry_service_pb2_grpc import RegistryServiceStub
from tradewind.worker import Gather, Worker, WorkerError, node, stay
from tradewind.worker.channel import explain, open_channel
from tradewind.worker.errors import NodeDefinitionError, WorkerRefused


@node("average", outputs=["average"])
async def average(prices: Gather[float], window: int = 20) -> float:
    """Average of prices."""
    return sum(prices[-window:]) / window


@node("hold")
async def hold() -> None:
    await asyncio.Event().wait()


async def test_worker_registers_with_its_node_types(engine: Engine) -> None:
    async with Worker([average], address=engine.address, worker_id="w1", capacity=7, labels={"zone": "a"}):
        pass

    request = engine.registered[0]
    registered = request.worker
    assert (registered.worker_id, list(registered.node_types), registered.capacity, registered.running) == (
        "w1",
        ["average"],
        7,
        0,
    )
    assert (registered.pid, dict(registered.labels), registered.api_url) == (os.getpid(), {"zone": "a"}, "")
    assert registered.sdk.startswith("tradewind-python/")
    (declared,) = request.node_types
    assert (declared.type, declared.description) == ("average", "Average of prices.")
    assert [(each.name, each.required, each.gather) for each in declared.inputs] == [
        ("prices", True, True),
        ("window", False, False),
    ]
    assert json.loads(declared.outputs[0].schema_json) == {"type": "number"}
    assert [(each.worker_id, each.incarnation) for each in engine.deregistered] == [("w1", registered.incarnation)]


async def test_warnings_of_the_registry_are_printed(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    engine.warnings.append('worker "w0" declares node type "average" differently')
    async with Worker([average], address=engine.address, worker_id="w1"):
        await until(lambda: engine.registered, "the worker has registered")
    assert engine.warnings[0] in caplog.messages


async def test_heartbeats_report_load_at_requested_interval(engine: Engine) -> None:
    engine.beat_seconds = 0.02
    async with Worker([hold], address=engine.address, worker_id="w1", grace=0) as running:
        session = await engine.session()
        session.assign("hold", "t1", "t2")
        await until(lambda: engine.beats and engine.beats[-1].worker.running == 2, "a beat tells of both")
        assert running.running == 2

    assert engine.beats[-1].worker.node_types == ["hold"]


async def test_heartbeats_of_workers_that_failed_together_come_apart(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[float, float]] = []

    def earliest(low: float, high: float) -> float:
        drawn.append((low, high))
        return 0.001

    monkeypatch.setattr("tradewind.worker.registration.random.uniform", earliest)
    engine.beat_seconds = 60
    async with Worker([hold], address=engine.address):
        await until(lambda: len(engine.beats) > 1, "heartbeats come earlier than the interval")
    assert (0.8, 1.0) in drawn


async def test_worker_registers_again_when_asked(engine: Engine) -> None:
    engine.beat_seconds = 0.02
    engine.beat_answer = registry_service_pb2.HeartbeatResponse(register_again=True)
    async with Worker([hold], address=engine.address):
        await until(lambda: len(engine.registered) == 2, "the worker registers again")

    assert engine.registered[0].node_types == engine.registered[1].node_types


async def test_registry_can_ask_worker_to_leave(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    released = asyncio.Event()

    @node("slow")
    async def slow() -> str:
        await released.wait()
        return "done"

    engine.beat_seconds = 0.02
    leaving = Worker([slow], address=engine.address, grace=0)
    serving = asyncio.create_task(leaving.serve())
    session = await engine.session()
    session.assign("slow", "t1")
    await until(lambda: leaving.running, "the node runs")
    engine.beat_answer = registry_service_pb2.HeartbeatResponse(drain=True)
    await until(lambda: any(request.draining for request in session.requests), "the worker takes no more")
    beats = len(engine.beats)
    await until(lambda: len(engine.beats) > beats + 2, "it goes on beating, beyond its grace")
    released.set()
    await serving

    assert [completion.token for completion in session.completions] == ["t1"]
    assert len(engine.deregistered) == 1
    told = [line for line in caplog.messages if line.startswith("leaving")]
    assert told == ["leaving, as the registry asks: running nodes may take as long as they need"]


async def test_calls_to_unavailable_registry_are_repeated(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    engine.registry_fault = grpc.StatusCode.UNAVAILABLE
    engine.beat_seconds = 0.02
    serving = asyncio.create_task(Worker([hold], address=engine.address, worker_id="w1").serve())
    await until(lambda: engine.registry_faults >= 3, "registering was tried three times")
    assert not engine.sessions
    engine.registry_fault = None
    await until(lambda: engine.beats, "the worker is registered and beats")
    engine.registry_fault = grpc.StatusCode.INTERNAL
    tried = engine.registry_faults
    await until(lambda: engine.registry_faults >= tried + 3, "a beat was tried three times")
    beats = len(engine.beats)
    engine.registry_fault = None
    await until(lambda: len(engine.beats) > beats + 1, "it beats again, and has heard that it does")
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving

    assert len(engine.registered) == 1
    lines = [each for each in caplog.messages if "the registry" in each]
    assert [each.partition(";")[0] for each in lines] == [
        "calls to the registry fail, trying again: UNAVAILABLE: as the test wants",
        "calls to the registry succeed again",
        "calls to the registry fail, trying again: INTERNAL: as the test wants",
        "calls to the registry succeed again",
    ]


async def test_refused_connection_is_explained_in_plain_words() -> None:
    address = f"127.0.0.1:{free_port()}"
    channel = open_channel(address)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await RegistryServiceStub(channel).Heartbeat(registry_service_pb2.HeartbeatRequest())
    await channel.close()
    assert explain(caught.value) == f'nobody answers at {address}: is "tradewind up" running?'


async def test_work_begins_without_registry(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stay, "REGISTRY_PATIENCE", 0.05)
    engine.registry_fault = grpc.StatusCode.UNAVAILABLE
    starting = Worker([hold], address=engine.address)
    serving = asyncio.create_task(starting.serve())
    await engine.session()
    starting.stop()
    await serving

    assert engine.deregistered == []


async def test_late_registration_reports_current_load(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stay, "REGISTRY_PATIENCE", 0.05)
    engine.registry_fault = grpc.StatusCode.UNAVAILABLE
    late = Worker([hold], address=engine.address, grace=0)
    serving = asyncio.create_task(late.serve())
    (await engine.session()).assign("hold", "t1")
    await until(lambda: late.running, "the node runs")
    engine.registry_fault = None
    await until(lambda: engine.registered, "it is registered")
    late.stop()
    await serving

    assert engine.registered[0].worker.running == 1


async def test_refusal_by_registry_ends_worker(engine: Engine) -> None:
    engine.registry_fault = grpc.StatusCode.INVALID_ARGUMENT

    with pytest.raises(WorkerRefused, match="the registry refuses this worker: INVALID_ARGUMENT: as the test wants"):
        async with Worker([hold], address=engine.address):
            pass
    assert engine.deregistered == []


@pytest.mark.parametrize("named", ["TRADEWIND_ADDRESS", "TRADEWIND_NODE_TASK_MANAGER_ADDRESS"])
async def test_addresses_come_from_the_environment(engine: Engine, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    registry = await started_engine()
    monkeypatch.setenv(named, engine.address)
    monkeypatch.setenv("TRADEWIND_REGISTRY_ADDRESS", registry.address)
    async with Worker([hold]) as running:
        pass
    await registry.stop()

    assert (len(registry.registered), len(registry.sessions)) == (1, 0)
    assert (len(engine.registered), len(engine.sessions)) == (0, 1)
    assert running.worker_id == registry.registered[0].worker.worker_id
    assert f"-{os.getpid()}-" in running.worker_id


async def test_heartbeats_reach_all_replicas_of_registry(engine: Engine) -> None:
    other = await started_engine()
    engine.beat_seconds = other.beat_seconds = 0.02
    both = f"ipv4:{engine.address},{other.address}"
    async with Worker([hold], address=engine.address, registry_address=both):
        await until(lambda: engine.beats and other.beats, "both hear of it")
    await other.stop()


def test_invalid_worker_options_are_refused() -> None:
    other = node("average")(lambda: 1)

    with pytest.raises(NodeDefinitionError, match='two nodes have the type "average"'):
        Worker([average, other])
    with pytest.raises(NodeDefinitionError, match="is not a node: decorate the function"):
        Worker([lambda: 1])  # type: ignore[list-item]
    with pytest.raises(WorkerError, match="a worker needs at least one node"):
        Worker([])
    with pytest.raises(ValueError, match='worker_id "a b" must begin'):
        Worker([average], worker_id="a b")
    for capacity in (0, 10_001):
        with pytest.raises(ValueError, match=f"capacity must be 1 to 10000, is {capacity}"):
            Worker([average], capacity=capacity)
    with pytest.raises(ValueError, match="thread_capacity must be at least 1, is 0"):
        Worker([average], thread_capacity=0)
    for number in ("3", 2.5, None):
        with pytest.raises(ValueError, match=f"thread_capacity must be a whole number, at least 1, is {number!r}"):
            Worker([average], thread_capacity=number)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="capacity must be a whole number, 1 to 10000, is '3'"):
        Worker([average], capacity="3")  # type: ignore[arg-type]
    for grace in (-1, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"grace must be from 0 to 365 days, is {grace!r}"):
            Worker([average], grace=grace)
    with pytest.raises(ValueError, match='grace: "soon" is not a length of time: give seconds, or text such as'):
        Worker([average], grace="soon")
    with pytest.raises(ValueError, match='grace: give seconds, text such as "5m", or a timedelta, not null'):
        Worker([average], grace=None)  # type: ignore[arg-type]
    for given in (len, 3, "my.module"):
        with pytest.raises(NodeDefinitionError, match=f"{given!r} is not a node: decorate the function"):
            Worker(given)  # type: ignore[arg-type]
    assert Worker([average, average]).nodes == [average]


def test_worker_accepts_single_node_or_iterable() -> None:
    assert Worker(average).nodes == [average]
    assert Worker(each for each in [average]).nodes == [average]
