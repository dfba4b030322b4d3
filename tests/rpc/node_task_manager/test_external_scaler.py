"""KEDA's external scaler over a real channel: what it reports about a pool of workers."""

from typing import TYPE_CHECKING

import grpc

from tests.rpc.node_task_manager.conftest import Ntm, plan
from tests.rpc.node_task_manager.test_ad_hoc import submit_task
from tests.rpc.node_task_manager.test_bad_input import faults
from tests.rpc.node_task_manager.test_calls import claim, complete
from tests.waiting import until
from tradewind.api.keda.v1 import external_scaler_pb2 as pb2
from tradewind.api.keda.v1.external_scaler_pb2_grpc import ExternalScalerStub
from tradewind.api.node_task_manager.v1 import queue_pb2

if TYPE_CHECKING:
    from tradewind.api.keda.v1.external_scaler_pb2_grpc import ExternalScalerAsyncStub

METRIC = "tradewind-node-tasks"


def scaled(**metadata: str) -> pb2.ScaledObjectRef:
    return pb2.ScaledObjectRef(name="worker", namespace="tradewind", scaler_metadata=metadata)


async def counted(stub: "ExternalScalerAsyncStub", **metadata: str) -> int:
    """Ask for the metric the way KEDA does."""
    answer = await stub.GetMetrics(pb2.GetMetricsRequest(scaled_object_ref=scaled(**metadata), metric_name=METRIC))
    (value,) = answer.metric_values
    assert (value.metric_name, value.metric_value_float) == (METRIC, value.metric_value)
    return value.metric_value


async def test_metric_counts_queued_and_running_node_tasks(ntm: Ntm) -> None:
    stub = ExternalScalerStub(ntm.channel)
    assert not (await stub.IsActive(scaled())).result

    await ntm.submit(plan(nodes="a b c"))
    await ntm.submit(plan(nodes="a b", digest="p2"), flow_id="other", user_id="ann")
    (first,) = await claim(ntm, limit=1)

    async def is_counted(number: int, **metadata: str) -> None:
        async def matches() -> bool:
            return await counted(stub, **metadata) == number

        await until(matches, f"{number} node tasks count for {metadata}")

    await is_counted(5)
    await is_counted(5, nodeTypes="other, noop")
    await is_counted(4, countRunning="false")
    await is_counted(2, userId="ann")
    await is_counted(0, nodeTypes="other")
    assert (await stub.IsActive(scaled(nodeTypes="noop"))).result
    assert not (await stub.IsActive(scaled(nodeTypes="other"))).result
    await complete(ntm, first.token)
    await is_counted(4)


async def test_running_ad_hoc_task_is_counted(ntm: Ntm) -> None:
    await submit_task(ntm)
    assert len(await claim(ntm)) == 1
    stub = ExternalScalerStub(ntm.channel)

    async def counts() -> bool:
        return await counted(stub, userId="ann") == 1

    await until(counts, "the task that runs counts")
    (queue,) = (await ntm.stub.GetQueueStats(queue_pb2.GetQueueStatsRequest())).queues
    assert (queue.node_type, queue.user_id, queue.running) == ("noop", "ann", 1)


async def test_target_is_the_number_of_tasks_per_worker(ntm: Ntm) -> None:
    stub = ExternalScalerStub(ntm.channel)
    for metadata, target in (({}, 10.0), ({"tasksPerWorker": "2.5"}, 2.5)):
        (spec,) = (await stub.GetMetricSpec(scaled(**metadata))).metric_specs
        assert (spec.metric_name, spec.target_size_float) == (METRIC, target)
        assert spec.target_size == -(-target // 1)


async def test_active_stream_answers_at_once_and_ends_when_server_stops(ntm: Ntm) -> None:
    call = ExternalScalerStub(ntm.channel).StreamIsActive(scaled())
    first = await call.read()
    assert isinstance(first, pb2.IsActiveResponse)
    assert not first.result
    await ntm.server.stop()
    assert await call.code() is grpc.StatusCode.UNAVAILABLE


async def test_every_metadata_fault_is_reported(ntm: Ntm) -> None:
    stub = ExternalScalerStub(ntm.channel)
    wrong = scaled(nodeTypes="a b,c", userId="!", countRunning="perhaps", tasksPerWorker="none")
    names = {f"scaler_metadata.{name}" for name in ("nodeTypes", "userId", "countRunning", "tasksPerWorker")}
    assert set(await faults(stub.IsActive(wrong))) == names
    assert set(await faults(stub.GetMetricSpec(wrong))) == names
    another = pb2.GetMetricsRequest(scaled_object_ref=scaled(), metric_name="cpu")
    assert await faults(stub.GetMetrics(another)) == ["metric_name"]


def test_contract_matches_keda() -> None:
    """KEDA finds methods and fields by these names and numbers."""
    service = pb2.DESCRIPTOR.services_by_name["ExternalScaler"]
    assert service.full_name == "externalscaler.ExternalScaler"
    methods = {
        method.name: (method.input_type.full_name, method.output_type.full_name, method.server_streaming)
        for method in service.methods
    }
    reference, active = "externalscaler.ScaledObjectRef", "externalscaler.IsActiveResponse"
    assert methods == {
        "IsActive": (reference, active, False),
        "StreamIsActive": (reference, active, True),
        "GetMetricSpec": (reference, "externalscaler.GetMetricSpecResponse", False),
        "GetMetrics": ("externalscaler.GetMetricsRequest", "externalscaler.GetMetricsResponse", False),
    }
    fields = {
        name: [(field.number, field.camelcase_name) for field in message.fields]
        for name, message in pb2.DESCRIPTOR.message_types_by_name.items()
    }
    assert fields == {
        "ScaledObjectRef": [(1, "name"), (2, "namespace"), (3, "scalerMetadata")],
        "IsActiveResponse": [(1, "result")],
        "GetMetricSpecResponse": [(1, "metricSpecs")],
        "MetricSpec": [(1, "metricName"), (2, "targetSize"), (3, "targetSizeFloat")],
        "GetMetricsRequest": [(1, "scaledObjectRef"), (2, "metricName")],
        "GetMetricsResponse": [(1, "metricValues")],
        "MetricValue": [(1, "metricName"), (2, "metricValue"), (3, "metricValueFloat")],
    }
