"""Requests with times that no clock shows."""

import grpc
import pytest
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from tests.rpc.scheduler.conftest import Client
from tests.rpc.scheduler.errors import refused
from tradewind.api.scheduler.v1 import backfill_pb2, job_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2

ODD = (
    Timestamp(seconds=-(2**63)),
    Timestamp(seconds=-1),
    Timestamp(seconds=253_402_300_800),
    Timestamp(seconds=2**63 - 1),
    Timestamp(nanos=1_000_000_000),
)


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: f"{odd.seconds}.{odd.nanos}")
async def test_time_outside_1970_to_9999_is_refused_naming_its_field(scheduler: Client, odd: Timestamp) -> None:
    await scheduler.register()
    pattern = job_pb2.BulkFilter(flow_ids=["f"], started_after=odd)
    job = job_pb2.StartBulkJobRequest(action=job_pb2.BULK_ACTION_STOP, filter=pattern)
    calls: list[tuple[str, Message, str]] = [
        ("StartFlow", pb2.StartFlowRequest(flow_id="f", start_at=odd), "start_at"),
        ("ListFlows", pb2.ListFlowsRequest(created_before=odd), "created_before"),
        ("ListCycles", pb2.ListCyclesRequest(flow_id="f", started_after=odd), "started_after"),
        ("BackfillFlow", backfill_pb2.BackfillFlowRequest(flow_id="f", end=odd), "end"),
        ("StartBulkJob", job, "filter.started_after"),
    ]
    for name, request, path in calls:
        refusal = await refused(
            getattr(scheduler.stub, name)(request), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT"
        )
        assert refusal.violations == [(path, "must be a time from 1970 to 9999")], name
