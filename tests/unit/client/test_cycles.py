"""Running flows, and what cycles return: results, failures, descriptions, bulks, logs."""

import asyncio
import pickle
from weakref import WeakSet

import grpc
import pytest
from google.rpc import error_details_pb2

from tests.unit.client.fake_scheduler import Ending
from tests.unit.client.fake_stack import FakeStack
from tests.unit.client.refusal import Refusal
from tests.waiting import until
from tradewind.api.scheduler.v1 import cycle_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb
from tradewind.client import (
    Client,
    CycleFailed,
    CycleHandle,
    CycleOrigin,
    CycleStatus,
    Exhausted,
    InvalidInput,
    LogLevel,
    LogLine,
    LogSource,
    NodeError,
    NodeFailure,
    NodeTaskStatus,
    NotFound,
    RunRequest,
    SignalStatus,
    TimedOut,
)
from tradewind.client.log_following import follow_logs


async def test_inputs_must_be_mapping(client: Client) -> None:
    with pytest.raises(TypeError, match="inputs must map names to values"):
        await client.run_flow("momentum", ["2001-04"])  # type: ignore[arg-type]


async def test_result_of_run_is_output_of_sinks(client: Client, stack: FakeStack) -> None:
    run = await client.run_flow("momentum", {"window": 3})

    assert await run.result() == {"model": {"forecast": 7}}
    assert stack.scheduler.last(pb.RunFlowRequest).inputs_json == '{"window":3}'
    assert run.record is not None
    assert run.record.inputs == {"window": 3}
    assert run.record.origin is CycleOrigin.RUN_FLOW
    assert run.record.seconds == 0.25


async def test_waiting_for_short_run_takes_one_call(client: Client, stack: FakeStack) -> None:
    run = await client.run_flow("momentum", wait=10)

    assert await run.result() == {"model": {"forecast": 7}}
    assert len(stack.scheduler.requests) == 1


async def test_result_waits_longer_than_first_call(client: Client, stack: FakeStack) -> None:
    stack.scheduler.ending = None
    run = await client.run_flow("momentum", wait=0.01)
    result = asyncio.ensure_future(run.result())
    await until(lambda: stack.scheduler.count(pb.GetCycleRequest) == 1, "the client waits for the cycle")

    await stack.scheduler.end("momentum", 0)

    assert await result == {"model": {"forecast": 7}}
    assert len(stack.scheduler.requests) == 2


async def test_waiting_for_missing_run_raises_not_found(client: Client, stack: FakeStack) -> None:
    run = await client.run_flow("momentum")

    with pytest.raises(NotFound, match="no run 3"):
        await client.cycle("momentum", run.cycle, 3).wait(timeout=5)


async def test_result_is_that_of_latest_known_run(client: Client, stack: FakeStack) -> None:
    await client.run_flow("momentum")
    cycle = client.cycle("momentum", 0)
    assert (await cycle.wait()).run == 0
    stack.scheduler.cycles["momentum"][0].run = 1
    stack.scheduler.endings["momentum", 0] = Ending(outputs={"forecast": 8})

    assert (await cycle.get()).run == 1
    assert await cycle.result() == {"model": {"forecast": 8}}


async def test_waiting_for_result_times_out(client: Client, stack: FakeStack) -> None:
    stack.scheduler.ending = None
    run = await client.run_flow("momentum")

    with pytest.raises(TimedOut, match=r"cycle 0 of momentum has not ended after 0\.05 s"):
        await run.result(timeout=0.05)

    assert (await run.get()).status is CycleStatus.RUNNING


async def test_unknown_phase_and_status_of_newer_server_are_tolerated(client: Client, stack: FakeStack) -> None:
    await client.run_flow("momentum")
    stack.scheduler.cycles["momentum"][0].MergeFrom(cycle_pb2.Cycle(status=99, phase=99))  # type: ignore[arg-type]

    cycle = await client.cycle("momentum", 0).get()

    assert (cycle.status, cycle.phase) == (CycleStatus.UNKNOWN, "")


async def test_waiting_for_expired_cycle_raises_not_found(client: Client, stack: FakeStack) -> None:
    stack.scheduler.flows["momentum"].last_cycle = 5

    with pytest.raises(NotFound, match="no cycle 3"):
        await client.cycle("momentum", 3).wait(timeout=5)

    assert stack.scheduler.watchers == 0


async def test_cycle_of_reregistered_flow_is_not_taken_for_earlier_one(client: Client, stack: FakeStack) -> None:
    stack.scheduler.ending = None
    run = await client.run_flow("momentum")
    stack.scheduler.cycles["momentum"][0].run_id = "another"
    await stack.scheduler.end("momentum", 0)

    with pytest.raises(NotFound, match="another run has its number"):
        await run.result(timeout=5)


async def test_result_waits_for_cycle_that_has_not_begun(client: Client, stack: FakeStack) -> None:
    stack.scheduler.ending = None
    result = asyncio.ensure_future(client.cycle("momentum", 0).result())
    await until(lambda: stack.scheduler.watchers == 1, "the client watches for the cycle")

    await stack.scheduler.begin("momentum")
    await stack.scheduler.end("momentum", 0)

    assert await result == {"model": {"forecast": 7}}


async def test_failed_run_names_failed_nodes_and_errors(client: Client, stack: FakeStack) -> None:
    stack.scheduler.ending = Ending(status="FAILED", model="FAILED")
    run = await client.flow("momentum").run(wait=5)

    with pytest.raises(CycleFailed) as caught:
        await run.result()

    failure = caught.value
    assert failure.cycle.status is CycleStatus.FAILED
    assert [(each.node_id, each.status) for each in failure.failures] == [("model", NodeTaskStatus.FAILED)]
    assert failure.outputs == {}
    assert failure.reason == "CYCLE_FAILED"
    assert str(failure) == "cycle 0 of momentum ended with status failed\n  model (model) failed: ValueError: no prices"


async def test_error_of_failed_run_can_be_pickled(client: Client, stack: FakeStack) -> None:
    stack.scheduler.ending = Ending(status="FAILED", model="FAILED")
    with pytest.raises(CycleFailed) as caught:
        await (await client.run_flow("momentum", wait=5)).result()
    failure = caught.value

    copied = pickle.loads(pickle.dumps(failure))

    assert type(copied) is CycleFailed
    assert (str(copied), copied.cycle, copied.failures) == (str(failure), failure.cycle, failure.failures)


def test_further_lines_of_a_failure_are_indented_below_its_node() -> None:
    error = NodeError("TIMEOUT", "took 5 s\nof 2 s", final_reason="all 2 attempts failed")
    failure = NodeFailure("model", "model", NodeTaskStatus.FAILED, "", error)
    assert str(failure).splitlines() == [
        "model (model) failed: TIMEOUT: took 5 s",
        "    of 2 s",
        "    not tried again: all 2 attempts failed",
    ]


async def test_cycle_description_is_joined_from_pages(client: Client) -> None:
    await client.run_flow("momentum")

    described = await client.cycle("momentum", 0).describe(include_outputs=True)

    assert [node.node_id for node in described.nodes] == ["feed", "model"]
    assert described.signals[0].status is SignalStatus.LIVE
    assert [node.node_id for node in described.sinks] == ["model"]
    feed = described.node("feed")
    assert feed is not None
    assert feed.outputs == {"prices": [1, 2]}
    assert feed.status.ended
    assert described.node("fede") is None
    assert described.statistics.completed_nodes == 2


async def test_lists_cycles_newest_first(client: Client, stack: FakeStack) -> None:
    stack.scheduler.page_size = 2
    for _ in range(5):
        await client.run_flow("momentum")
    stack.scheduler.ending = None
    await client.run_flow("momentum")

    assert [cycle.cycle async for cycle in client.flow("momentum").cycles()] == [5, 4, 3, 2, 1, 0]
    running = client.list_cycles("momentum", statuses=[CycleStatus.RUNNING])
    assert [cycle.cycle async for cycle in running] == [5]


async def test_bulk_run_has_result_for_each_item(client: Client, stack: FakeStack) -> None:
    results = await client.run_flows(["momentum", "nobody", RunRequest("momentum", {"n": 2})])

    first, second, third = results
    assert isinstance(first, CycleHandle)
    assert isinstance(second, NotFound)
    assert isinstance(third, CycleHandle)
    assert (first.cycle, third.cycle) == (0, 1)
    assert await third.result() == {"model": {"forecast": 7}}
    assert [item.inputs_json for item in stack.scheduler.last(pb.RunFlowsRequest).items] == ["", "", '{"n":2}']


async def test_bulk_run_is_split_by_message_size(client: Client, stack: FakeStack) -> None:
    large = {"text": "x" * 1_000_000}

    results = await client.run_flows([RunRequest("momentum", large)] * 5)

    assert len(results) == 5
    requests = [request for request in stack.scheduler.requests if isinstance(request, pb.RunFlowsRequest)]
    assert [len(request.items) for request in requests] == [2, 2, 1]
    assert len({request.request_id for request in requests}) == 3


async def test_refused_message_of_bulk_keeps_handles_of_others(client: Client, stack: FakeStack) -> None:
    large = RunRequest("momentum", {"text": "x" * 1_000_000})
    fault = error_details_pb2.BadRequest.FieldViolation(field="items[1].flow_id", description="is not valid")
    faulty = error_details_pb2.BadRequest(field_violations=[fault])
    refusal = Refusal(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT", details=[faulty])
    full = Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL")
    stack.scheduler.refusals.extend([None, refusal, full, None])

    results = await client.run_flows([large] * 7)

    kinds = [CycleHandle] * 2 + [InvalidInput] * 2 + [Exhausted] * 2 + [CycleHandle]
    assert [type(result) for result in results] == kinds
    assert str(results[3]) == "the request has faults:\n  items[3].flow_id: is not valid"
    stack.scheduler.refusals.append(refusal)
    with pytest.raises(InvalidInput, match=r"items\[1\]\.flow_id"):
        await client.run_flows([large] * 3)


async def test_bulk_with_item_of_wrong_type_begins_nothing(client: Client, stack: FakeStack) -> None:
    large = RunRequest("momentum", {"text": "x" * 1_000_000})

    with pytest.raises(TypeError, match="each request must be a flow's id or a RunRequest"):
        await client.run_flows([large, large, large, 7])  # type: ignore[list-item]
    assert not stack.scheduler.requests


async def test_logs_are_listed_by_cycle_node_and_level(client: Client, stack: FakeStack) -> None:
    stack.scheduler.page_size = 2
    stack.scheduler.log("momentum", "begun")
    stack.scheduler.log("momentum", "fitting", node_id="model", level="DEBUG")
    stack.scheduler.log("momentum", "odd prices", node_id="feed", level="WARNING")
    stack.scheduler.log("momentum", "begun", cycle=1)

    async def messages(**choice: object) -> list[str]:
        return [line.message async for line in client.list_logs("momentum", **choice)]  # type: ignore[arg-type]

    assert await messages() == ["begun", "fitting", "odd prices", "begun"]
    assert await messages(cycle=1) == ["begun"]
    assert await messages(node_id="model") == ["fitting"]
    assert await messages(min_level="warning") == ["odd prices"]


async def test_followed_logs_do_not_pile_up_in_memory() -> None:
    remembered: WeakSet[LogLine] = WeakSet()
    received: list[str] = []

    class Line(LogLine):
        """A line that shows whether it is still remembered."""

        __slots__ = ("__weakref__",)

    async def page(token: str) -> tuple[list[LogLine], str]:
        newest: list[LogLine] = [
            Line(f"{at}", "f", at, "", LogLevel.INFO, LogSource.NODE, f"line {at}", None)
            for at in range(len(received), len(received) + 5)
        ]
        remembered.update(newest)
        return newest, ""

    async def ended() -> bool:
        return len(received) >= 100

    async for line in follow_logs(page, ended, 0):
        received.append(line.message)
        assert len(remembered) <= 15
    assert received == [f"line {at}" for at in range(len(received))]


async def test_logs_are_followed_until_the_cycle_has_ended(client: Client, stack: FakeStack) -> None:
    stack.scheduler.ending = None
    stack.scheduler.page_size = 2
    await client.run_flow("momentum")
    for number in range(3):
        stack.scheduler.log("momentum", f"line {number}")
    received: list[str] = []

    async def follow() -> None:
        async for line in client.watch_logs("momentum", 0, interval=0.01):
            received.append(line.message)

    following = asyncio.ensure_future(follow())
    await until(lambda: len(received) == 3, "the lines that are there are received")
    stack.scheduler.log("momentum", "line 3")
    await until(lambda: len(received) == 4, "the new line is received")
    stack.scheduler.log("momentum", "the last")
    await stack.scheduler.end("momentum", 0)
    await following

    assert received == ["line 0", "line 1", "line 2", "line 3", "the last"]


async def test_no_cycle_is_missing_from_followed_logs_of_a_flow(client: Client, stack: FakeStack) -> None:
    """Many cycles may begin from one look to the next, of which the log of the flow then shows the newest five."""
    scheduler = stack.scheduler
    received: list[str] = []

    async def follow() -> None:
        async for line in client.watch_logs("momentum", interval=0.01):
            received.append(line.message)

    async def run(count: int) -> None:
        for _ in range(count):
            cycle = (await scheduler.begin("momentum")).cycle
            scheduler.log("momentum", f"{cycle} begins", cycle)

    await run(3)
    following = asyncio.ensure_future(follow())
    await until(lambda: len(received) == 3, "the lines that are there are received")
    await run(20)
    scheduler.log("momentum", "2 ends", 2)
    await until(lambda: "22 begins" in received, "the newest line is received")
    await run(1)
    await until(lambda: "23 begins" in received, "a further line is received")
    following.cancel()

    assert sorted(received) == sorted(["2 ends", *(f"{cycle} begins" for cycle in range(24))])
