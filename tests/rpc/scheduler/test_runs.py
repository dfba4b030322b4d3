"""Running flows: begin, hand over, wait, outcomes, bulk, repeated requests."""

import asyncio
import hashlib
import json

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from tests.rpc.scheduler.conftest import Client, Peers, Start
from tests.rpc.scheduler.errors import refused
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import component_pb2, node_task_pb2
from tradewind.api.scheduler.v1 import cycle_pb2, flow_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.scheduler.rpc import run_results
from tradewind.scheduler.use_cases.sink_outputs import LARGEST_OUTPUTS
from tradewind.server.partitions import PARTITIONS, partition_of


async def test_run_flow_answers_once_its_cycle_has_ended(scheduler: Client, peers: Peers) -> None:
    await scheduler.register("f", "a", "b", edges="a>b", timeout="5m")
    cycle = await scheduler.run("f", inputs_json='{"x": 1}')
    assert (cycle.flow_id, cycle.cycle, cycle.run) == ("f", 0, 0)
    assert cycle.status == cycle_pb2.CYCLE_STATUS_COMPLETED
    assert cycle.origin == cycle_pb2.CYCLE_ORIGIN_RUN_FLOW
    assert (cycle.inputs_json, cycle.node_count, cycle.counts.completed) == ('{"x": 1}', 2, 2)
    assert cycle.HasField("end_time")
    assert cycle.revision == 1
    submission = peers.node_tasks.runs["f", 0, 0].submission
    assert (submission.run_id, submission.user_id, submission.inputs_json) == (cycle.run_id, "default", '{"x": 1}')
    assert submission.deadline.ToMilliseconds() == cycle.start_time.ToMilliseconds() + 300_000
    assert submission.begun_at == cycle.start_time
    assert submission.planned_time == cycle.planned_time
    await until(lambda: not peers.node_tasks.unacknowledged, "the event is acknowledged")
    assert await scheduler.cycle("f") == cycle
    assert await scheduler.lines() == ["Starting cycle 0", "Cycle 0 completed"]


async def test_a_plan_is_sent_once_and_named_by_its_digest(scheduler: Client, peers: Peers) -> None:
    await scheduler.register("f", "a", "b", edges="a>b", timeout="5m")
    await scheduler.run()
    await scheduler.run()
    await scheduler.register("twin", "a", "b", edges="a>b")
    await scheduler.run("twin")
    assert sum(len(request.plans) for request in peers.node_tasks.requests) == 1
    ((digest, plan),) = peers.node_tasks.plans.items()
    assert len(digest) == len(hashlib.sha256().hexdigest())
    assert [(node.node_id, node.node_type) for node in plan.nodes] == [("a", "noop"), ("b", "noop")]
    assert [(e.source, e.source_handle, e.target, e.target_handle) for e in plan.edges] == [(0, "out", 1, "in")]
    assert plan.nodes[0].schedule_to_start.seconds == 300


async def test_cycle_ends_with_its_last_component(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register("f", "a", "b", "c", edges="a>b")
    cycle = await scheduler.run(wait=0)
    assert cycle.status == cycle_pb2.CYCLE_STATUS_RUNNING
    await peers.node_tasks.finish(("f", 0, 0), "1")
    await until(lambda: not peers.node_tasks.unacknowledged, "the first component is in")
    assert (await scheduler.cycle()).status == cycle_pb2.CYCLE_STATUS_RUNNING
    assert (await scheduler.flow()).running_cycles == 1
    await peers.node_tasks.finish(("f", 0, 0), "0")
    ended = await scheduler.ended()
    assert (ended.status, ended.counts.completed) == (cycle_pb2.CYCLE_STATUS_COMPLETED, 3)
    assert (await scheduler.flow()).running_cycles == 0


@pytest.mark.parametrize(
    ("counts", "sinks", "status", "log_line"),
    [
        ({"completed": 1, "skipped": 1}, 1, cycle_pb2.CYCLE_STATUS_COMPLETED, "Cycle 0 completed"),
        ({"completed": 1, "failed": 1}, 1, cycle_pb2.CYCLE_STATUS_PARTIAL, "Cycle 0 partial: 1 failed of 2 nodes"),
        (
            {"failed": 1, "skipped": 1},
            0,
            cycle_pb2.CYCLE_STATUS_FAILED,
            "Cycle 0 failed: 1 failed, 1 skipped of 2 nodes",
        ),
    ],
)
async def test_outcome_of_a_cycle_follows_from_its_nodes(
    scheduler: Client, peers: Peers, counts: dict[str, int], sinks: int, status: int, log_line: str
) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register("f", "a", "b", edges="a>b")
    await scheduler.run(wait=0)
    await peers.node_tasks.finish(("f", 0, 0), "0", sinks, **counts)
    cycle = await scheduler.ended()
    assert cycle.status == status
    assert (await scheduler.lines())[-1] == log_line


async def test_wait_ends_after_the_given_time(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register()
    cycle = await scheduler.run(wait=0.05)
    assert cycle.status == cycle_pb2.CYCLE_STATUS_RUNNING


async def test_outputs_of_sinks_are_included_on_request(scheduler: Client, peers: Peers) -> None:
    await scheduler.register("f", "a", "b", edges="a>b")
    output = node_task_pb2.Output(handle="out", value_json="42")
    peers.node_tasks.nodes["f", 0, 0] = [
        node_task_pb2.NodeTask(node_task_id="f:0:0:a", node_id="a", outputs=[output]),
        node_task_pb2.NodeTask(node_task_id="f:0:0:b", node_id="b", outputs=[output]),
    ]
    response = await scheduler.run_flow(include_outputs=True)
    assert [(each.node_id, list(each.outputs)) for each in response.outputs] == [("b", [output])]


async def test_outputs_too_large_for_an_answer_are_omitted(scheduler: Client, peers: Peers) -> None:
    await scheduler.register("f", "a", "b", "c")
    await scheduler.register("small")
    # Each letter takes two bytes.
    large = [node_task_pb2.Output(handle="out", value_json=json.dumps("\u00e4" * 400_000, ensure_ascii=False))]
    for cycle in range(2):
        peers.node_tasks.nodes["f", cycle, 0] = [
            node_task_pb2.NodeTask(node_task_id=f"f:{cycle}:0:{name}", node_id=name, outputs=large) for name in "abc"
        ]
    small = [node_task_pb2.Output(handle="out", value_json="42")]
    for cycle in range(2):
        peers.node_tasks.nodes["small", cycle, 0] = [
            node_task_pb2.NodeTask(node_task_id=f"small:{cycle}:0:a", node_id="a", outputs=small)
        ]
    one = await scheduler.run_flow(include_outputs=True)
    assert (one.cycle.status, len(one.outputs), one.outputs_omitted) == (cycle_pb2.CYCLE_STATUS_COMPLETED, 0, True)
    items = [pb2.RunFlowItem(flow_id=flow_id) for flow_id in ("small", "f", "small")]
    request = pb2.RunFlowsRequest(items=items, include_outputs=True)
    request.wait.FromSeconds(10)
    bulk = await scheduler.stub.RunFlows(request)
    assert [(len(each.outputs), each.outputs_omitted) for each in bulk.results] == [(1, False), (0, True), (0, True)]


async def test_no_more_outputs_are_read_than_an_answer_may_hold(scheduler: Client, peers: Peers) -> None:
    names = [f"n{at}" for at in range(20)]
    await scheduler.register("f", *names)
    await scheduler.register("small")
    megabyte = node_task_pb2.Output(handle="out", value_json=json.dumps("x" * 1_000_000))
    small = node_task_pb2.Output(handle="out", value_json="42")
    for flow_id, tasks, output in (("f", names, megabyte), ("small", ["a"], small)):
        peers.node_tasks.nodes[flow_id, 0, 0] = [
            node_task_pb2.NodeTask(node_task_id=f"{flow_id}:0:0:{name}", node_id=name, outputs=[output])
            for name in tasks
        ]
    requests = [pb2.GetCycleRequest(flow_id=flow_id, include_outputs=True) for flow_id in ("f", "small")]
    for request in requests:
        await scheduler.run(request.flow_id)
    answers = await asyncio.gather(*map(scheduler.stub.GetCycle, requests))
    assert [(len(each.outputs), each.outputs_omitted) for each in answers] == [(0, True), (1, False)]
    assert peers.node_tasks.outputs_sent <= 5


@pytest.mark.parametrize(
    ("node_id", "handle", "value"),
    [("last", "out", "{}"), ("n" * 128, "h" * 128, json.dumps("\u00e4" * 200_000, ensure_ascii=False))],
)
def test_counted_size_of_outputs_is_close_to_their_encoded_size(node_id: str, handle: str, value: str) -> None:
    room = 10 * LARGEST_OUTPUTS
    response = pb2.RunFlowsResponse()
    message = response.results.add()
    left = run_results.add_outputs(message, [(node_id, [(handle, value), (handle, value)])], room)
    assert 0 <= room - left - response.ByteSize() < 60


async def test_repeated_request_gets_the_outputs_of_its_own_revision(scheduler: Client, peers: Peers) -> None:
    await scheduler.register("f", "a")
    output = node_task_pb2.Output(handle="out", value_json="42")
    peers.node_tasks.nodes["f", 0, 0] = [node_task_pb2.NodeTask(node_task_id="f:0:0:a", node_id="a", outputs=[output])]
    first = await scheduler.run_flow(include_outputs=True, request_id="r")
    await scheduler.register("f", "a", "b", edges="a>b")
    again = await scheduler.run_flow(include_outputs=True, request_id="r")
    assert (again.cycle.run_id, again.outputs) == (first.cycle.run_id, first.outputs)


async def test_overlap_skip_refuses_and_names_the_running_cycle(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register("f", overlap=flow_pb2.OVERLAP_POLICY_SKIP)
    await scheduler.run(wait=0)
    error = await refused(scheduler.run(wait=0), grpc.StatusCode.ABORTED, "OVERLAP_SKIPPED")
    assert error.metadata == {"flow_id": "f", "cycle": "0"}
    assert error.message.endswith("or let cycles run side by side: tradewind flow update f overlap=allow")


async def test_an_unknown_flow_is_not_found(scheduler: Client) -> None:
    error = await refused(scheduler.run("nothing"), grpc.StatusCode.NOT_FOUND, "FLOW_NOT_FOUND")
    assert error.metadata == {"flow_id": "nothing"}


async def test_all_faults_of_run_requests_are_reported(scheduler: Client) -> None:
    await scheduler.register()
    items = [
        pb2.RunFlowItem(flow_id="f", inputs_json="[1]"),
        pb2.RunFlowItem(flow_id="no good"),
        pb2.RunFlowItem(flow_id="f", inputs_json="{"),
        pb2.RunFlowItem(flow_id="f", inputs_json='{"a":"' + "x" * 2**20 + '"}'),
    ]
    request = pb2.RunFlowsRequest(items=items, request_id="with space")
    error = await refused(scheduler.stub.RunFlows(request), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    paths = ["request_id", "items[0].inputs_json", "items[1].flow_id", "items[2].inputs_json", "items[3].inputs_json"]
    assert [path for path, _ in error.violations] == paths
    many = pb2.RunFlowsRequest(items=[pb2.RunFlowItem(flow_id="no good")] * 150)
    error = await refused(scheduler.stub.RunFlows(many), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert error.message.endswith("(and 149 more)"), "those that the answer does not list are counted"
    too_long = pb2.RunFlowRequest(flow_id="f")
    too_long.wait.FromSeconds(3601)
    error = await refused(scheduler.stub.RunFlow(too_long), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert error.violations[0][0] == "wait"


async def test_a_large_bulk_is_handed_over_in_messages_of_500_nodes(scheduler: Client, peers: Peers) -> None:
    await scheduler.register("f", *(f"n{number}" for number in range(7)))
    request = pb2.RunFlowsRequest(items=[pb2.RunFlowItem(flow_id="f")] * 300)
    request.wait.FromSeconds(20)
    response = await scheduler.stub.RunFlows(request)
    assert [result.cycle.cycle for result in response.results] == list(range(300))
    assert {result.cycle.status for result in response.results} == {cycle_pb2.CYCLE_STATUS_COMPLETED}
    submitted = [len(request.runs) for request in peers.node_tasks.requests if not request.plans]
    assert max(submitted) * 7 <= 500
    assert sum(submitted) >= 300


async def test_a_repeated_request_gets_the_first_cycle(scheduler: Client) -> None:
    await scheduler.register()
    first = await scheduler.run(request_id="r1", inputs_json='{"a":1}')
    again = await scheduler.run(request_id="r1", inputs_json='{"a":1}')
    assert again == first
    other = scheduler.run(request_id="r1", inputs_json='{"a":2}')
    await refused(other, grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    request = pb2.RunFlowsRequest(items=[pb2.RunFlowItem(flow_id="f")] * 2, request_id="bulk")
    request.wait.FromSeconds(10)
    bulk = await scheduler.stub.RunFlows(request)
    assert [result.cycle.cycle for result in bulk.results] == [1, 2]
    assert await scheduler.stub.RunFlows(request) == bulk


async def test_a_request_id_is_remembered_for_each_flow(scheduler: Client) -> None:
    flows = [f"f{number}" for number in range(PARTITIONS + 1)]
    assert len({partition_of(flow_id) for flow_id in flows}) < len(flows), "two of them share a partition"
    for flow_id in flows:
        await scheduler.register(flow_id, request_id="deploy")
        assert (await scheduler.run(flow_id, request_id="daily")).cycle == 0
        assert (await scheduler.run(flow_id, request_id="daily")).cycle == 0
    refusal = await refused(
        scheduler.run(flows[0], request_id="deploy"), grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED"
    )
    assert "another method" in refusal.message


async def test_request_is_forgotten_after_remember_for(scheduler: Client) -> None:
    await scheduler.register()
    second = Duration(seconds=1)
    first = await scheduler.run(request_id="r", remember_for=second)

    async def forgotten() -> bool:
        return (await scheduler.run(request_id="r", remember_for=second)).cycle > first.cycle

    await until(forgotten, "the request is forgotten")
    kept = await scheduler.run(request_id="kept")
    assert (await scheduler.run(request_id="kept", remember_for=second)).cycle == kept.cycle
    item = pb2.RunFlowItem(flow_id="f")
    for seconds in (0, -1, 86_401):
        length = Duration(seconds=seconds)
        for call in (
            scheduler.run(request_id="r", remember_for=length),
            scheduler.stub.RunFlows(pb2.RunFlowsRequest(items=[item], request_id="r", remember_for=length)),
            scheduler.stub.RerunCycle(pb2.RerunCycleRequest(flow_id="f", request_id="r", remember_for=length)),
        ):
            refusal = await refused(call, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
            assert [path for path, _ in refusal.violations] == ["remember_for"]


async def test_concurrent_runs_are_submitted_together(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    cycles = await asyncio.gather(*(scheduler.run() for _ in range(100)))
    assert sorted(cycle.cycle for cycle in cycles) == list(range(100))
    assert len(peers.node_tasks.requests) < 60


async def test_run_uses_the_revision_registered_on_another_replica(start: Start, scheduler: Client) -> None:
    other = await start()
    await scheduler.register("f", "a")
    await scheduler.run()
    await other.register("f", "a", "b")
    cycle = await scheduler.run()
    assert (cycle.revision, cycle.node_count) == (2, 2)


async def test_replica_that_does_not_own_the_flow_waits_for_the_end(start: Start, scheduler: Client) -> None:
    other = await start()
    await other.register("f", "a")
    assert (await other.run()).status == cycle_pb2.CYCLE_STATUS_COMPLETED
    request = pb2.RunFlowsRequest(items=[pb2.RunFlowItem(flow_id="f")] * 20)
    request.wait.FromSeconds(10)
    response = await other.stub.RunFlows(request)
    assert {result.cycle.status for result in response.results} == {cycle_pb2.CYCLE_STATUS_COMPLETED}


async def test_cycle_numbers_of_foreign_runs_are_skipped(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    for number in range(6):
        peers.node_tasks.put(component_pb2.RunSubmission(flow_id="f", cycle=number, run_id="of an earlier life"))
    cycle = await scheduler.run(request_id="r")
    assert cycle.status == cycle_pb2.CYCLE_STATUS_COMPLETED
    assert cycle.cycle >= 6
    assert (await scheduler.run(request_id="r")).cycle == cycle.cycle
    response = await scheduler.stub.ListCycles(pb2.ListCyclesRequest(flow_id="f"))
    assert [each.cycle for each in response.cycles] == [cycle.cycle]
    assert (await scheduler.flow()).last_cycle == cycle.cycle


async def test_refused_cycle_shows_its_reason_and_is_resubmitted(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    refusal = component_pb2.SubmitResult(outcome=component_pb2.SUBMIT_OUTCOME_REFUSED, reason="QUEUE_FULL")
    refusal.retry_delay.FromMilliseconds(10)
    peers.node_tasks.refusals = [refusal]
    cycle = await scheduler.run(wait=0)
    assert (cycle.status, cycle.reason) == (
        cycle_pb2.CYCLE_STATUS_RUNNING,
        "the node task manager refused it: QUEUE_FULL",
    )
    ended = await scheduler.ended()
    assert (ended.status, ended.reason) == (cycle_pb2.CYCLE_STATUS_COMPLETED, "")
    assert "Not submitted yet: the node task manager refused it: QUEUE_FULL" in await scheduler.lines()


async def test_cycle_is_submitted_once_the_node_task_manager_is_back(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    await peers.node_tasks.go_down()
    cycle = await scheduler.run(wait=0)
    assert cycle.status == cycle_pb2.CYCLE_STATUS_RUNNING
    assert "cannot be reached" in cycle.reason
    await peers.node_tasks.come_up()
    assert (await scheduler.ended()).status == cycle_pb2.CYCLE_STATUS_COMPLETED


async def test_a_cycle_belongs_to_the_trace_of_its_caller(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    request = pb2.RunFlowRequest(flow_id="f")
    request.wait.FromSeconds(10)
    metadata = (("traceparent", f"00-{trace_id}-b7ad6b7169203331-01"),)
    response = await scheduler.stub.RunFlow(request, metadata=metadata)
    assert response.cycle.trace_id == trace_id
    assert peers.node_tasks.runs["f", 0, 0].submission.traceparent.split("-")[1] == trace_id
    assert (await scheduler.run()).trace_id == ""
