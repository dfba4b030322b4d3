"""Flows through the client: registering, listing, starting, deleting, and the definitions it accepts."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.arrays import Array
from tests.unit.client.fake_scheduler import FLOW
from tests.unit.client.fake_stack import FakeStack
from tradewind.api.scheduler.v1 import flow_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb
from tradewind.client import Client, FlowStatus, InvalidInput, NotFound, Violation, json_text
from tradewind.flow import Flow, FlowFileError


async def test_register_sends_dict_as_json(client: Client, stack: FakeStack) -> None:
    registered = await client.register_flow("prices", FLOW, labels={"team": "a"})

    request = stack.scheduler.last(pb.RegisterFlowRequest)
    assert json_text.decode(request.weather_json) == FLOW
    assert request.request_id
    assert registered.changed
    assert registered.warnings == (Violation("nodes[0].type", 'no live worker offers "feed"'),)
    assert registered.flow.flow_id == "prices"
    assert registered.flow.status is FlowStatus.REGISTERED
    assert registered.flow.labels == {"team": "a"}
    assert registered.flow.config == FLOW
    assert registered.flow.last_cycle is None
    assert registered.flow.node_count == 2
    assert [component.entry_nodes for component in registered.flow.components] == [("feed",)]


async def test_register_sends_json_text_unchanged(client: Client, stack: FakeStack) -> None:
    """The server judges the text, so that it can name faults, and integers beyond 2^53 keep their digits."""
    text = ' {"interval": 5, "nodes": [], "n": 12345678901234567890}'

    await client.register_flow("prices", text)

    assert stack.scheduler.last(pb.RegisterFlowRequest).weather_json == text


@pytest.mark.parametrize("as_text", [False, True])
async def test_register_reads_definition_from_file(
    client: Client, stack: FakeStack, tmp_path: Path, as_text: bool
) -> None:
    path = tmp_path / "flow.json"
    path.write_text(json_text.encode(FLOW), encoding="utf-8")

    await client.register_flow("prices", str(path) if as_text else path)

    assert json_text.decode(stack.scheduler.last(pb.RegisterFlowRequest).weather_json) == FLOW


async def test_register_accepts_flow_built_in_python(client: Client, stack: FakeStack) -> None:
    flow = Flow("prices", "5m")
    flow.node("feed", "feed")["prices"] >> flow.node("model", "model")["prices"]

    await client.flow("prices").register(flow)

    assert json_text.decode(stack.scheduler.last(pb.RegisterFlowRequest).weather_json) == FLOW


async def test_faulty_file_is_refused_with_line_and_column(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text("interval: 5m\nnodes: none", encoding="utf-8")

    with pytest.raises(FlowFileError, match=r"flow\.yaml:2:8: nodes: must be a list"):
        await client.register_flow("prices", path)


async def test_all_faults_of_definition_are_raised_with_paths(client: Client, stack: FakeStack) -> None:
    stack.scheduler.violations = [
        flow_pb2.Violation(path="interval", message="is missing"),
        flow_pb2.Violation(path="edges[3].target", message='no node "modle"; did you mean "model"?'),
    ]

    with pytest.raises(InvalidInput) as caught:
        await client.register_flow("prices", FLOW)

    assert [each.path for each in caught.value.violations] == ["interval", "edges[3].target"]
    assert str(caught.value) == (
        'the request has faults:\n  interval: is missing\n  edges[3].target: no node "modle"; did you mean "model"?'
    )
    assert caught.value.reason == "INVALID_INPUT"


async def test_analyze_returns_faults_as_data(client: Client, stack: FakeStack) -> None:
    stack.scheduler.violations = [flow_pb2.Violation(path="interval", message="is missing")]

    analysis = await client.analyze_flow(FLOW)

    assert not analysis.valid
    assert analysis.violations == (Violation("interval", "is missing"),)
    assert analysis.components[0].nodes == ("feed", "model")
    assert analysis.components[0].is_dag


async def test_definition_that_is_not_json_is_refused(client: Client) -> None:
    with pytest.raises(ValueError, match="a value of type object"):
        await client.register_flow("prices", {"nodes": [object()]})


async def test_arrays_are_sent_as_json_lists(client: Client, stack: FakeStack) -> None:
    await client.run_flow("momentum", {"prices": Array(1.0, 2.5)})
    assert stack.scheduler.last(pb.RunFlowRequest).inputs_json == '{"prices":[1.0,2.5]}'


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
async def test_nan_and_infinity_in_inputs_are_refused(client: Client, number: float) -> None:
    with pytest.raises(ValueError, match=rf"prices\[1\].last\[1\] is {number}"):
        await client.run_flow("momentum", {"prices": [None, {"last": (1.0, number)}]})
    await client.run_flow("momentum", {"prices": [None, {"last": (1.0, None)}]})


async def test_lists_flows_over_pages(client: Client, stack: FakeStack) -> None:
    stack.scheduler.page_size = 2
    for name in "abcde":
        stack.scheduler.add_flow(name, labels={"team": "a" if name < "d" else "b"})

    assert [flow.flow_id async for flow in client.list_flows()] == ["a", "b", "c", "d", "e", "momentum"]
    assert [flow.flow_id async for flow in client.list_flows(labels={"team": "a"})] == ["a", "b", "c"]
    assert [flow.flow_id async for flow in client.list_flows(statuses=["running"])] == []


async def test_flow_handle_starts_stops_and_describes_flow(client: Client, stack: FakeStack) -> None:
    flow = client.flow("momentum")
    at = datetime(2030, 1, 1, tzinfo=UTC)

    started = await flow.start(at=at)
    stopped = await flow.stop(reason="the market is closed")
    described = await flow.describe()

    assert started.status is FlowStatus.RUNNING
    assert started.next_execution == at
    assert stopped.status is FlowStatus.STOPPED
    assert stack.scheduler.last(pb.StopFlowRequest).reason == "the market is closed"
    assert described.flow.status is FlowStatus.STOPPED
    assert described.current_cycle is None


async def test_start_time_without_zone_is_refused(client: Client) -> None:
    with pytest.raises(ValueError, match="no time zone"):
        await client.start_flow("momentum", at=datetime(2030, 1, 1))


async def test_delete_tells_whether_it_is_done(client: Client, stack: FakeStack) -> None:
    stack.scheduler.add_flow("other")

    assert await client.delete_flow("momentum", wait=timedelta(seconds=2))
    assert not await client.delete_flow("other", wait=0)
    with pytest.raises(NotFound, match='no flow "momentum"') as caught:
        await client.delete_flow("momentum")

    assert caught.value.reason == "FLOW_NOT_FOUND"
    assert caught.value.metadata == {"flow_id": "momentum"}


async def test_repeated_delete_succeeds_after_lost_answer(client: Client, stack: FakeStack) -> None:
    stack.scheduler.lost_answers = 1

    assert await client.delete_flow("momentum")
    assert stack.scheduler.count(pb.DeleteFlowRequest) == 2
