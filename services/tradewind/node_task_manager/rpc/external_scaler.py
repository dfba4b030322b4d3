"""KEDA's contract for external scalers: parse, ask for the demand, answer."""

import math
from collections.abc import Mapping
from contextlib import aclosing

from tradewind.api.keda.v1 import external_scaler_pb2 as pb2
from tradewind.api.keda.v1 import external_scaler_pb2_grpc as pb2_grpc
from tradewind.node_task_manager.use_cases.demand import Demand, Pool
from tradewind.server.all_faults import require
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.identifiers import check_identifier
from tradewind.server.interception import Context
from tradewind.server.streams import OpenStreams

NAME = "externalscaler.ExternalScaler"
METRIC = "tradewind-node-tasks"
TASKS_PER_WORKER = 10.0

_MAX_PER_WORKER = 1_000_000


class ExternalScalerHandlers(pb2_grpc.ExternalScalerServicer):
    """Tells KEDA how many node tasks wait and run."""

    def __init__(self, demand: Demand, streams: OpenStreams) -> None:
        self._demand = demand
        self._streams = streams

    async def IsActive(self, request: pb2.ScaledObjectRef, context: Context) -> pb2.IsActiveResponse:
        pool, _ = read_metadata(request.scaler_metadata)
        return pb2.IsActiveResponse(result=await self._demand.of(pool) > 0)

    async def StreamIsActive(self, request: pb2.ScaledObjectRef, context: Context) -> None:  # type: ignore[override]
        pool, _ = read_metadata(request.scaler_metadata)
        with self._streams.opened():
            async with aclosing(self._demand.follow(pool)) as changes:
                async for active in changes:
                    await context.write(pb2.IsActiveResponse(result=active))

    async def GetMetricSpec(self, request: pb2.ScaledObjectRef, context: Context) -> pb2.GetMetricSpecResponse:
        _, target = read_metadata(request.scaler_metadata)
        spec = pb2.MetricSpec(metric_name=METRIC, target_size=math.ceil(target), target_size_float=target)
        return pb2.GetMetricSpecResponse(metric_specs=[spec])

    async def GetMetrics(self, request: pb2.GetMetricsRequest, context: Context) -> pb2.GetMetricsResponse:
        pool, _ = read_metadata(request.scaled_object_ref.scaler_metadata)
        if request.metric_name not in ("", METRIC):
            raise InvalidInput([Violation("metric_name", f'no metric "{request.metric_name}"; use {METRIC}')])
        count = await self._demand.of(pool)
        value = pb2.MetricValue(metric_name=METRIC, metric_value=count, metric_value_float=count)
        return pb2.GetMetricsResponse(metric_values=[value])


def read_metadata(metadata: Mapping[str, str]) -> tuple[Pool, float]:
    """Return which work counts, and how many node tasks a worker should have. Raises InvalidInput with every fault."""
    faults: list[Violation | None] = []
    node_types = [name.strip() for name in metadata.get("nodeTypes", "").split(",") if name.strip()]
    faults += [check_identifier("scaler_metadata.nodeTypes", name) for name in node_types]
    user_id = metadata.get("userId", "")
    if user_id:
        faults.append(check_identifier("scaler_metadata.userId", user_id))
    running = metadata.get("countRunning", "true").lower()
    if running not in ("true", "false"):
        faults.append(Violation("scaler_metadata.countRunning", f'must be "true" or "false", is "{running}"'))
    text = metadata.get("tasksPerWorker", str(TASKS_PER_WORKER))
    target = _number(text)
    if not 0 < target <= _MAX_PER_WORKER:
        message = f'must be a number above 0 and at most {_MAX_PER_WORKER}, is "{text}"'
        faults.append(Violation("scaler_metadata.tasksPerWorker", message))
    require(faults)
    return Pool(frozenset(node_types), user_id, running == "true"), target


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
