"""Getting and listing flows."""

import json
from collections.abc import Awaitable

import grpc
import pytest

from tests.rpc.scheduler.conftest import Client
from tests.rpc.scheduler.errors import refused
from tradewind.api.scheduler.v1 import flow_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.api.scheduler.v1.scheduler_service_pb2_grpc import SchedulerServiceStub


async def test_get_flow_returns_the_latest_cycle(scheduler: Client) -> None:
    await scheduler.register()
    response = await scheduler.stub.GetFlow(pb2.GetFlowRequest(flow_id="f"))
    assert not response.HasField("current_cycle")
    await scheduler.run()
    cycle = await scheduler.run()
    response = await scheduler.stub.GetFlow(pb2.GetFlowRequest(flow_id="f"))
    assert response.current_cycle == cycle
    assert response.flow.last_cycle == 1


@pytest.mark.parametrize(
    ("flow_id", "code", "reason"),
    [
        ("nothing", grpc.StatusCode.NOT_FOUND, "FLOW_NOT_FOUND"),
        ("", grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT"),
        ("f:cycle:0:0", grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT"),
    ],
)
async def test_unknown_and_invalid_flow_ids_are_refused(
    scheduler: Client, flow_id: str, code: grpc.StatusCode, reason: str
) -> None:
    await scheduler.register("f")
    await scheduler.run("f")
    stub = scheduler.stub
    calls: list[Awaitable[object]] = [
        stub.GetFlow(pb2.GetFlowRequest(flow_id=flow_id)),
        stub.StartFlow(pb2.StartFlowRequest(flow_id=flow_id)),
        stub.StopFlow(pb2.StopFlowRequest(flow_id=flow_id)),
        stub.DeleteFlow(pb2.DeleteFlowRequest(flow_id=flow_id)),
        stub.GetCycle(pb2.GetCycleRequest(flow_id=flow_id)),
        stub.ListCycles(pb2.ListCyclesRequest(flow_id=flow_id)),
        stub.DescribeCycle(pb2.DescribeCycleRequest(flow_id=flow_id)),
        stub.ListLogs(pb2.ListLogsRequest(flow_id=flow_id)),
        stub.RunFlow(pb2.RunFlowRequest(flow_id=flow_id)),
    ]
    for call in calls:
        await refused(call, code, reason)


async def test_page_of_large_flows_fits_into_one_message(scheduler: Client) -> None:
    config = json.dumps({"text": "é" * 120_000}, ensure_ascii=False)
    for number in range(4):
        nodes = [flow_pb2.NodeSpec(id=f"n{place}", type="noop", config_json=config) for place in range(6)]
        await scheduler.register(f"f{number}", nodes=nodes)
    listed: list[str] = []
    token = ""
    while not listed or token:
        page = await scheduler.stub.ListFlows(pb2.ListFlowsRequest(page_token=token))
        listed += [flow.flow_id for flow in page.flows]
        token = page.next_page_token
    assert listed == ["f0", "f1", "f2", "f3"]


async def test_largest_flow_fits_into_every_answer(scheduler: Client) -> None:
    """Together with its structure, and with what its latest cycle was given, for callers with gRPC's own limits."""
    names = [f"n{i:05}{'x' * 122}" for i in range(5_500)]
    weather = {
        "interval": "1h",
        "nodes": [{"id": name, "type": "t"} for name in names],
        "edges": [
            {"source": name, "source_handle": "out", "target": names[0], "target_handle": "in"} for name in names[1:]
        ],
    }
    labels = {f"{i:03}{'x' * 125}": "ü" * 256 for i in range(32)}
    text = json.dumps(weather, separators=(",", ":"))
    async with grpc.aio.insecure_channel(scheduler.server.address) as channel:
        stub = SchedulerServiceStub(channel)
        request = pb2.RegisterFlowRequest(flow_id="f", weather_json=text, labels=labels)
        registered = await stub.RegisterFlow(request)
        assert registered.ByteSize() > 3_900_000
        cycle = await scheduler.run(inputs_json=json.dumps({"text": "x" * 1_000_000}))
        answer = await stub.GetFlow(pb2.GetFlowRequest(flow_id="f"))
        assert (answer.flow.structure, answer.current_cycle.cycle) == (registered.flow.structure, cycle.cycle)
        assert answer.current_cycle.inputs_json == ""
        assert (await stub.GetCycle(pb2.GetCycleRequest(flow_id="f"))).cycle.inputs_json == cycle.inputs_json
        await stub.StartFlow(pb2.StartFlowRequest(flow_id="f"))
        await stub.PauseFlow(pb2.PauseFlowRequest(flow_id="f", note="x" * 1024))
        await stub.StopFlow(pb2.StopFlowRequest(flow_id="f", reason="x" * 1024))
        assert [flow.flow_id for flow in (await stub.ListFlows(pb2.ListFlowsRequest())).flows] == ["f"]


async def test_flows_are_listed_by_id_filtered_and_paged(scheduler: Client) -> None:
    for number in range(25):
        await scheduler.register(f"flow-{number:02}", labels={"odd": str(number % 2), "team": "a"})
    await scheduler.start("flow-03")
    seen: list[str] = []
    token = ""
    pages = 0
    while pages == 0 or token:
        response = await scheduler.stub.ListFlows(
            pb2.ListFlowsRequest(page_size=5, page_token=token, labels={"odd": "1", "team": "a"})
        )
        seen += [flow.flow_id for flow in response.flows]
        token = response.next_page_token
        pages += 1
    assert seen == [f"flow-{number:02}" for number in range(1, 25, 2)]
    assert pages == 3
    running = pb2.ListFlowsRequest(statuses=[flow_pb2.FLOW_STATUS_RUNNING])
    assert [flow.flow_id for flow in (await scheduler.stub.ListFlows(running)).flows] == ["flow-03"]
    middle = (await scheduler.flow("flow-12")).created_at
    late = await scheduler.stub.ListFlows(pb2.ListFlowsRequest(created_after=middle))
    early = await scheduler.stub.ListFlows(pb2.ListFlowsRequest(created_before=middle))
    assert len(late.flows) + len(early.flows) == 25
    assert "flow-12" in [flow.flow_id for flow in late.flows]


async def test_a_bad_list_request_is_refused(scheduler: Client) -> None:
    for request in (
        pb2.ListFlowsRequest(page_token="nonsense"),
        pb2.ListFlowsRequest(page_size=-1),
        pb2.ListFlowsRequest(statuses=[99]),  # type: ignore[list-item]
    ):
        await refused(scheduler.stub.ListFlows(request), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
