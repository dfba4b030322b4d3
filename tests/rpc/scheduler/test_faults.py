"""Every call reports all faults of its request at once."""

from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tests.rpc.scheduler.conftest import Client
from tests.rpc.scheduler.errors import refused
from tradewind.api.scheduler.v1 import backfill_pb2, flow_pb2, job_pb2, revision_pb2, stop_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2

NO_ID = "a b"
BEFORE = Duration(seconds=-3)
NEVER = Timestamp(seconds=-1)
PAGE: Any = {"page_size": -1, "page_token": "?"}
PAGE_FAULTS = {"page_size", "page_token"}
LONG = "x" * 2000
ODD_FILTER = job_pb2.BulkFilter(statuses=[99], started_after=NEVER, started_before=NEVER, limit=-1)  # type: ignore[list-item]
ODD_FILTER_FAULTS = {
    f"filter.{field}" for field in ("flow_ids", "statuses[0]", "started_after", "started_before", "limit")
}

CASES: list[tuple[Any, set[str]]] = [
    (
        pb2.RunFlowRequest(flow_id=NO_ID, inputs_json="{", wait=BEFORE, request_id=NO_ID, remember_for=BEFORE),
        {"flow_id", "inputs_json", "wait", "request_id", "remember_for"},
    ),
    (pb2.RunFlowsRequest(items=[pb2.RunFlowItem(flow_id=NO_ID)], wait=BEFORE), {"items[0].flow_id", "wait"}),
    (
        pb2.RerunCycleRequest(flow_id=NO_ID, wait=BEFORE, inputs_json="{", by=LONG, reason=LONG),
        {"flow_id", "wait", "inputs_json", "by", "reason"},
    ),
    (pb2.GetCycleRequest(flow_id=NO_ID, wait=BEFORE), {"flow_id", "wait"}),
    (
        pb2.ListFlowsRequest(statuses=[99], created_after=NEVER, created_before=NEVER, **PAGE),  # type: ignore[list-item]
        {"statuses[0]", "created_after", "created_before", *PAGE_FAULTS},
    ),
    (
        pb2.ListCyclesRequest(flow_id=NO_ID, statuses=[99], started_after=NEVER, **PAGE),  # type: ignore[list-item]
        {"flow_id", "statuses[0]", "started_after", *PAGE_FAULTS},
    ),
    (pb2.ListCyclesRequest(flow_id=NO_ID, statuses=[99] * 1001), {"flow_id", "statuses"}),  # type: ignore[list-item]
    (pb2.DescribeCycleRequest(flow_id=NO_ID, page_size=-1), {"flow_id", "page_size"}),
    (
        pb2.ListLogsRequest(flow_id=NO_ID, node_id=NO_ID, min_level=99, **PAGE),  # type: ignore[arg-type]
        {"flow_id", "node_id", "min_level", *PAGE_FAULTS},
    ),
    (pb2.ListFiringsRequest(flow_id=NO_ID, **PAGE), {"flow_id", *PAGE_FAULTS}),
    (pb2.ListNextExecutionsRequest(flow_id=NO_ID, count=-1), {"flow_id", "count"}),
    (pb2.StartFlowRequest(flow_id=NO_ID, start_at=NEVER), {"flow_id", "start_at"}),
    (pb2.StopFlowRequest(flow_id=NO_ID, by=LONG, reason=LONG), {"flow_id", "by", "reason"}),
    (pb2.PauseFlowRequest(flow_id=NO_ID, by=LONG, note=LONG), {"flow_id", "by", "note"}),
    (stop_pb2.StopCycleRequest(flow_id=NO_ID, by=LONG, request_id=LONG), {"flow_id", "by", "request_id"}),
    (stop_pb2.StopNodeRequest(flow_id=NO_ID, node_id=NO_ID, by=LONG), {"flow_id", "node_id", "by"}),
    (
        backfill_pb2.BackfillFlowRequest(flow_id=NO_ID, start=NEVER, end=NEVER, max_running=-1, by=LONG),
        {"flow_id", "start", "end", "max_running", "by"},
    ),
    (revision_pb2.DiffRevisionsRequest(flow_id=NO_ID, from_revision=-1), {"flow_id", "from_revision"}),
    (
        job_pb2.StartBulkJobRequest(by=LONG, reason=LONG, request_id=NO_ID, filter=ODD_FILTER),
        {"action", "by", "reason", "request_id", *ODD_FILTER_FAULTS},
    ),
]


@pytest.mark.parametrize(("request_", "paths"), CASES, ids=lambda value: type(value).__name__)
async def test_all_faults_of_a_request_are_reported_at_once(scheduler: Client, request_: Any, paths: set[str]) -> None:
    method = getattr(scheduler.stub, type(request_).__name__.removesuffix("Request"))
    refusal = await refused(method(request_), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert {path for path, _ in refusal.violations} == paths


MISSING, UNFIT = grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION
NAMED: list[tuple[Any, grpc.StatusCode, str, dict[str, str]]] = [
    (pb2.GetCycleRequest(cycle=7), MISSING, "CYCLE_NOT_FOUND", {"cycle": "7"}),
    (pb2.GetCycleRequest(cycle=0, run=3), MISSING, "CYCLE_NOT_FOUND", {"cycle": "0", "run": "3"}),
    (stop_pb2.StopCycleRequest(), UNFIT, "CYCLE_ENDED", {"cycle": "0", "run": "0", "status": "completed"}),
    (pb2.RerunCycleRequest(), UNFIT, "RESULTS_EXPIRED", {"cycle": "0", "run": "0", "nodes": "a"}),
    (revision_pb2.GetRevisionRequest(revision=9), MISSING, "REVISION_NOT_FOUND", {"revision": "9"}),
    (backfill_pb2.GetBackfillRequest(backfill_id=4), MISSING, "BACKFILL_NOT_FOUND", {"backfill_id": "4"}),
]


@pytest.mark.parametrize(("request_", "code", "reason", "named"), NAMED)
async def test_metadata_of_errors_name_things_as_requests_do(
    scheduler: Client, request_: Any, code: grpc.StatusCode, reason: str, named: dict[str, str]
) -> None:
    await scheduler.register()
    await scheduler.run()
    request_.flow_id = "f"
    method = getattr(scheduler.stub, type(request_).__name__.removesuffix("Request"))
    assert (await refused(method(request_), code, reason)).metadata == {"flow_id": "f", **named}


async def test_hundreds_of_faults_are_truncated_and_counted(scheduler: Client) -> None:
    nodes = ",".join(f'{{"id": "a {at}", "type": "t"}}' for at in range(900))
    text = f'{{"interval": 60, "nodes": [{nodes}]}}'
    request = pb2.RegisterFlowRequest(flow_id="f", weather_json=text)
    refusal = await refused(scheduler.stub.RegisterFlow(request), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert refusal.message.endswith("(and 899 more)")
    assert refusal.violations[-1][1].startswith("and more")
    analysis = await scheduler.stub.AnalyzeFlow(
        pb2.AnalyzeFlowRequest(definition=flow_pb2.FlowDefinition(weather_json=text))
    )
    assert len(analysis.violations) == 101
    assert analysis.violations[-1].message == "and 800 more"
