"""Variables of cycles and flows, over gRPC."""

import asyncio
import json

import grpc
import pytest

from tests.rpc.scheduler.conftest import Client, Peers
from tests.rpc.scheduler.errors import refused
from tradewind.api.scheduler.v1 import memory_pb2 as pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2

FLOW = pb2.MemoryScope(flow_id="f")


async def variables(scheduler: Client, scope: pb2.MemoryScope = FLOW, *names: str) -> tuple[object, int]:
    memory = (await scheduler.stub.GetMemory(pb2.GetMemoryRequest(scope=scope, names=names))).memory
    return json.loads(memory.variables_json), memory.version


async def change(scheduler: Client, values: object = None, scope: pb2.MemoryScope = FLOW, **fields: object) -> int:
    request = pb2.UpdateMemoryRequest(
        scope=scope,
        set_json="" if values is None else json.dumps(values),
        **fields,  # type: ignore[arg-type]
    )
    return (await scheduler.stub.UpdateMemory(request)).version


async def test_flow_variables_are_set_read_and_deleted(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    assert await variables(scheduler) == ({}, 0)
    assert await change(scheduler, {"cursor": 17, "position": {"IBM": -3}}) == 1
    await scheduler.run()
    assert await variables(scheduler) == ({"cursor": 17, "position": {"IBM": -3}}, 1)
    assert await variables(scheduler, FLOW, "cursor", "none") == ({"cursor": 17}, 1)
    assert await change(scheduler, {"cursor": None}, delete=["position", "none"], expected_version=1) == 2
    assert await variables(scheduler) == ({"cursor": None}, 2)
    stale = scheduler.stub.UpdateMemory(pb2.UpdateMemoryRequest(scope=FLOW, set_json="{}", expected_version=1))
    info = await refused(stale, grpc.StatusCode.ABORTED, "VERSION_CONFLICT")
    assert info.metadata["version"] == "2"


async def test_repeated_change_is_applied_once(scheduler: Client) -> None:
    await scheduler.register()
    assert await change(scheduler, {"n": 1}, request_id="r1", expected_version=0) == 1
    assert await change(scheduler, {"n": 2}, request_id="r2", expected_version=1) == 2
    assert await change(scheduler, {"n": 1}, request_id="r1", expected_version=0) == 2
    assert await variables(scheduler) == ({"n": 2}, 2)


async def test_cycle_variables_can_be_changed_until_the_cycle_ends(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    peers.node_tasks.automatic = False
    cycle = await scheduler.run(wait=0)
    scope = pb2.MemoryScope(flow_id="f", cycle=0, run=0, run_id=cycle.run_id)
    assert await change(scheduler, {"seen": [1, 2]}, scope, result_json='{"profit": 3}') == 1
    assert await variables(scheduler, pb2.MemoryScope(flow_id="f", cycle=0)) == ({"seen": [1, 2]}, 1)
    assert await variables(scheduler) == ({}, 0)
    other = pb2.MemoryScope(flow_id="f", cycle=0, run_id="another")
    await refused(
        scheduler.stub.GetMemory(pb2.GetMemoryRequest(scope=other)), grpc.StatusCode.NOT_FOUND, "CYCLE_NOT_FOUND"
    )
    await scheduler.stop()
    ended = await scheduler.ended()
    assert (ended.error_code, json.loads(ended.result_json)) == ("CYCLE_STOPPED", {"profit": 3})
    assert await variables(scheduler, scope) == ({"seen": [1, 2]}, 1)
    late = scheduler.stub.UpdateMemory(pb2.UpdateMemoryRequest(scope=scope, set_json='{"seen": 3}'))
    await refused(late, grpc.StatusCode.FAILED_PRECONDITION, "WRONG_STATUS")


async def test_concurrent_writers_of_one_cycle_lose_no_variables(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    peers.node_tasks.automatic = False
    await scheduler.run(wait=0)
    scope = pb2.MemoryScope(flow_id="f", cycle=0)
    versions = await asyncio.gather(*(change(scheduler, {f"v{at}": at}, scope) for at in range(20)))
    assert sorted(versions) == list(range(1, 21))
    assert await variables(scheduler, scope) == ({f"v{at}": at for at in range(20)}, 20)
    await peers.node_tasks.finish(("f", 0, 0))
    assert (await scheduler.ended()).error_code == ""


@pytest.mark.parametrize("scope", [FLOW, pb2.MemoryScope(flow_id="f", cycle=0)], ids=["flow", "cycle"])
async def test_hundreds_of_concurrent_changes_all_succeed(
    scheduler: Client, peers: Peers, scope: pb2.MemoryScope
) -> None:
    await scheduler.register()
    peers.node_tasks.automatic = False
    await scheduler.run(wait=0)
    versions = await asyncio.gather(*(change(scheduler, {"n": at}, scope) for at in range(500)))
    assert sorted(versions) == list(range(1, 501))


async def test_variables_over_64_kib_are_refused_and_nothing_is_changed(scheduler: Client) -> None:
    await scheduler.register()
    assert await change(scheduler, {"a": "x" * 60_000}) == 1
    full = scheduler.stub.UpdateMemory(pb2.UpdateMemoryRequest(scope=FLOW, set_json=json.dumps({"b": "y" * 6000})))
    info = await refused(full, grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_LARGE")
    assert info.metadata["limit"] == "65536"
    assert await change(scheduler, {"b": "y" * 6000}, delete=["a"]) == 2


async def test_invalid_memory_requests_are_refused(scheduler: Client) -> None:
    await scheduler.register()
    wrong = pb2.UpdateMemoryRequest(scope=FLOW, set_json='{"": 1}', request_id="a b", result_json="1")
    await refused(scheduler.stub.UpdateMemory(wrong), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    for text in ("[1]", "{", '{"a": tru}'):
        request = pb2.UpdateMemoryRequest(scope=FLOW, set_json=text)
        await refused(scheduler.stub.UpdateMemory(request), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    nobody = pb2.GetMemoryRequest(scope=pb2.MemoryScope(flow_id="none"))
    await refused(scheduler.stub.GetMemory(nobody), grpc.StatusCode.NOT_FOUND, "FLOW_NOT_FOUND")
    no_cycle = pb2.GetMemoryRequest(scope=pb2.MemoryScope(flow_id="f", cycle=9))
    await refused(scheduler.stub.GetMemory(no_cycle), grpc.StatusCode.NOT_FOUND, "CYCLE_NOT_FOUND")
    run_without_cycle = pb2.GetMemoryRequest(scope=pb2.MemoryScope(flow_id="f", run=0))
    await refused(scheduler.stub.GetMemory(run_without_cycle), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")


async def test_variables_are_deleted_with_their_flow(scheduler: Client) -> None:
    await scheduler.register()
    await change(scheduler, {"a": 1})
    request = scheduler_service_pb2.DeleteFlowRequest(flow_id="f")
    request.wait.seconds = 10
    assert (await scheduler.stub.DeleteFlow(request)).done
    await scheduler.register()
    assert await variables(scheduler) == ({}, 0)


async def test_all_faults_of_a_change_are_reported_at_once(scheduler: Client) -> None:
    request = pb2.UpdateMemoryRequest(
        scope=pb2.MemoryScope(flow_id="a b", run_id="r"), set_json="[1]", request_id="a b", result_json="{"
    )
    error = await refused(scheduler.stub.UpdateMemory(request), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    paths = [path for path, _ in error.violations]
    assert paths == ["scope.flow_id", "scope.cycle", "request_id", "set_json", "result_json"]
