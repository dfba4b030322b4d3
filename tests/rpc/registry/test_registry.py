"""The registry over a real channel: its answers, and how it reports faults."""

from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from tests.rpc.registry.conftest import AVERAGE, Start, Stub, a_worker, register
from tests.waiting import until
from tradewind.api.registry.v1 import registry_service_pb2 as pb2
from tradewind.api.registry.v1 import worker_pb2
from tradewind.api.registry.v1.node_type_pb2 import InputHandle, NodeType, OutputHandle


def details_of(error: grpc.aio.AioRpcError) -> tuple[grpc.StatusCode, str, list[str]]:
    """Return the code, the reason and the paths of violations."""
    status = rpc_status.from_call(error)  # type: ignore[arg-type]
    assert status is not None
    info, bad_request = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status.details:
        detail.Unpack(info)
        detail.Unpack(bad_request)
    return error.code(), info.reason, [violation.field for violation in bad_request.field_violations]


async def test_worker_registers_sends_heartbeats_drains_and_deregisters(registry: Stub) -> None:
    asked = a_worker(
        api_url="worker:9000", running=1, host="h", pid=7, sdk="tradewind-python/0.1.0", labels={"zone": "a"}
    )
    answer = await register(registry, asked, AVERAGE)
    assert (answer.heartbeat_interval.seconds, answer.time_to_live.seconds) == (20, 60)
    worker = answer.worker
    assert worker.status == worker_pb2.WORKER_STATUS_ACTIVE
    assert worker.registered_at == worker.last_heartbeat
    assert list(worker.node_types) == ["average"]
    reported = worker_pb2.Worker()
    reported.CopyFrom(worker)
    for field in ("status", "registered_at", "last_heartbeat", "node_types"):
        reported.ClearField(field)
    assert reported == asked

    asked.node_types.append("average")
    beat = await registry.Heartbeat(pb2.HeartbeatRequest(worker=asked))
    assert (beat.register_again, beat.drain) == (False, False)
    drained = (await registry.DrainWorker(pb2.DrainWorkerRequest(worker_id="w"))).worker
    assert drained.status == worker_pb2.WORKER_STATUS_DRAINING
    assert (await registry.Heartbeat(pb2.HeartbeatRequest(worker=asked))).drain
    found = (await registry.GetWorker(pb2.GetWorkerRequest(worker_id="w"))).worker
    assert found.status == worker_pb2.WORKER_STATUS_DRAINING
    assert found.last_heartbeat.ToNanoseconds() >= worker.last_heartbeat.ToNanoseconds()

    leave = pb2.DeregisterWorkerRequest(worker_id="w", incarnation="i1")
    assert (await registry.DeregisterWorker(leave)).removed
    assert not (await registry.DeregisterWorker(leave)).removed


async def test_node_types_are_found_and_listed_with_built_in_ones(registry: Stub) -> None:
    await register(registry, a_worker("w2"), AVERAGE, NodeType(type="report"))
    await register(registry, a_worker("w1"), AVERAGE)
    declared = (await registry.GetNodeType(pb2.GetNodeTypeRequest(type="average"))).node_type
    assert list(declared.worker_ids) == ["w1", "w2"]
    assert declared.declared_at.seconds > 1_600_000_000
    declared.ClearField("worker_ids")
    declared.ClearField("declared_at")
    assert declared == AVERAGE
    pages = [await registry.ListNodeTypes(pb2.ListNodeTypesRequest(page_size=1))]
    while token := pages[-1].next_page_token:
        pages.append(await registry.ListNodeTypes(pb2.ListNodeTypesRequest(page_size=1, page_token=token)))
    listed = [(each.type, each.built_in) for page in pages for each in page.node_types]
    built_in = [("approval", True), ("delay", True), ("flow", True)]
    assert listed == sorted([*built_in, ("average", False), ("report", False)])
    delay = (await registry.GetNodeType(pb2.GetNodeTypeRequest(type="delay"))).node_type
    assert ([each.name for each in delay.outputs], delay.HasField("declared_at")) == (["output"], False)
    named = await registry.ListNodeTypes(pb2.ListNodeTypesRequest(types=["report", "unknown", "delay"]))
    assert [each.type for each in named.node_types] == ["report", "delay"]


async def test_worker_is_warned_of_node_types_that_a_live_worker_declares_differently(registry: Stub) -> None:
    other = NodeType(type="average", inputs=AVERAGE.inputs, outputs=[OutputHandle(name="mean")])
    renamed = NodeType(type="average", description="Another text", version="2")
    renamed.MergeFrom(NodeType(inputs=other.inputs, outputs=other.outputs))
    assert not (await register(registry, a_worker("w1"), AVERAGE, NodeType(type="same"))).warnings
    warnings = (await register(registry, a_worker("w2"), other, NodeType(type="same"))).warnings
    (warning,) = warnings
    assert warning.startswith('worker "w1" declares node type "average" differently: ')
    assert not (await register(registry, a_worker("w2"), renamed)).warnings
    await registry.DeregisterWorker(pb2.DeregisterWorkerRequest(worker_id="w1"))
    await registry.DeregisterWorker(pb2.DeregisterWorkerRequest(worker_id="w2"))
    assert not (await register(registry, a_worker("w3"), AVERAGE)).warnings


async def test_worker_is_not_warned_of_node_types_that_are_only_written_otherwise(registry: Stub) -> None:
    schemas = ('{"type":"array","items":{"type":"number"}}', '{"items": {"type": "number"}, "type": "array"}')
    inputs = [InputHandle(name="values", schema_json=schemas[0]), InputHandle(name="window")]
    outputs = [OutputHandle(name="mean"), OutputHandle(name="rest", schema_json=schemas[0])]
    declared = NodeType(type="average", inputs=inputs, outputs=outputs, config_schema_json='{"type":"object"}')
    inputs[0].schema_json = outputs[1].schema_json = schemas[1]
    written = NodeType(
        type="average", inputs=inputs[::-1], outputs=outputs[::-1], config_schema_json='{"type": "object"}'
    )
    await register(registry, a_worker("w1"), declared)
    assert not (await register(registry, a_worker("w2"), written)).warnings


async def test_declaring_a_built_in_node_type_is_refused(registry: Stub) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await register(registry, a_worker("w1"), NodeType(type="delay"))
    assert caught.value.details() == 'node_types[0].type: "delay" is a built-in node type; choose another name'


async def test_workers_are_listed_in_pages_and_found_by_node_type(registry: Stub) -> None:
    for number in range(3):
        await register(registry, a_worker(f"w{number}", running=3 - number), AVERAGE)
    first = await registry.ListWorkers(pb2.ListWorkersRequest(page_size=2))
    second = await registry.ListWorkers(pb2.ListWorkersRequest(page_size=2, page_token=first.next_page_token))
    assert [worker.worker_id for worker in (*first.workers, *second.workers)] == ["w0", "w1", "w2"]
    assert second.next_page_token == ""
    available = await registry.GetAvailableWorkers(pb2.GetAvailableWorkersRequest(node_type="average", limit=2))
    assert [worker.worker_id for worker in available.workers] == ["w2", "w1"]


@pytest.mark.parametrize(
    ("method", "request_", "code", "reason", "paths"),
    [
        (
            "RegisterWorker",
            pb2.RegisterWorkerRequest(node_types=[NodeType(type="a b", config_schema_json="[]"), AVERAGE, AVERAGE]),
            grpc.StatusCode.INVALID_ARGUMENT,
            "INVALID_INPUT",
            [
                "worker.worker_id",
                "worker.incarnation",
                "worker.capacity",
                "node_types[0].type",
                "node_types[2].type",
                "node_types[0].config_schema_json",
            ],
        ),
        (
            "Heartbeat",
            pb2.HeartbeatRequest(worker=a_worker(capacity=-1)),
            grpc.StatusCode.INVALID_ARGUMENT,
            "INVALID_INPUT",
            ["worker.capacity"],
        ),
        ("GetWorker", pb2.GetWorkerRequest(worker_id="x"), grpc.StatusCode.NOT_FOUND, "WORKER_NOT_FOUND", []),
        ("DrainWorker", pb2.DrainWorkerRequest(worker_id="x"), grpc.StatusCode.NOT_FOUND, "WORKER_NOT_FOUND", []),
        ("GetNodeType", pb2.GetNodeTypeRequest(type="x"), grpc.StatusCode.NOT_FOUND, "NODE_TYPE_NOT_FOUND", []),
        (
            "ListWorkers",
            pb2.ListWorkersRequest(page_size=-1),
            grpc.StatusCode.INVALID_ARGUMENT,
            "INVALID_INPUT",
            ["page_size"],
        ),
        (
            "ListNodeTypes",
            pb2.ListNodeTypesRequest(page_token="?"),
            grpc.StatusCode.INVALID_ARGUMENT,
            "INVALID_INPUT",
            ["page_token"],
        ),
    ],
)
async def test_errors_carry_reason_and_all_violation_paths(
    registry: Stub, method: str, request_: Any, code: grpc.StatusCode, reason: str, paths: list[str]
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await getattr(registry, method)(request_)
    assert details_of(caught.value) == (code, reason, paths)


async def test_replaced_incarnation_is_asked_to_drain_and_refused(registry: Stub) -> None:
    await register(registry, a_worker())
    await register(registry, a_worker(incarnation="i2"))
    assert (await registry.Heartbeat(pb2.HeartbeatRequest(worker=a_worker()))).drain
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await register(registry, a_worker())
    assert details_of(caught.value) == (grpc.StatusCode.FAILED_PRECONDITION, "SESSION_REPLACED", [])


async def test_replicas_share_workers_and_node_types(start: Start) -> None:
    here, there = await start(), await start()
    await register(here, a_worker(), AVERAGE)
    assert (await there.GetNodeType(pb2.GetNodeTypeRequest(type="average"))).node_type.worker_ids == ["w"]
    assert not (await there.Heartbeat(pb2.HeartbeatRequest(worker=a_worker(node_types=["average"])))).register_again


async def test_silent_workers_go_offline_and_are_later_swept_completely(start: Start, embedded: Any) -> None:
    registry = await start(
        registry_heartbeat_seconds=0.1,
        registry_time_to_live_seconds=2,
        registry_retention_seconds=0.5,
        registry_sweep_seconds=0.1,
    )
    await register(registry, a_worker(), AVERAGE)

    async def listed(include_offline: bool) -> list[int]:
        answer = await registry.ListWorkers(pb2.ListWorkersRequest(include_offline=include_offline))
        return [worker.status for worker in answer.workers]

    async def offline() -> bool:
        return not await listed(False)

    await until(offline, "the worker is offline")
    assert await listed(True) in ([worker_pb2.WORKER_STATUS_OFFLINE], [])

    async def swept() -> bool:
        return list(await embedded.keys()) == ["trading_flow:{registry}:data_version"]

    await until(swept, "nothing of the worker is left")
    assert await listed(True) == []
    beat = await registry.Heartbeat(pb2.HeartbeatRequest(worker=a_worker(node_types=["average"])))
    assert beat.register_again
    assert await listed(False) == [worker_pb2.WORKER_STATUS_ACTIVE]
