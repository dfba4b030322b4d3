"""Invalid requests are refused with the paths of their faults, and harm nobody else."""

from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from tests.rpc.node_task_manager.conftest import Ntm, plan
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import component_pb2, retry_pb2, work_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2

CHAIN = plan(("a", "out", "b", "price"))
NEVER = Timestamp(seconds=1 << 60)


async def faults(call: Any) -> list[str]:
    """Return the paths of the violations for which a call is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT, caught.value
    request = error_details_pb2.BadRequest()
    rpc_status.from_call(caught.value).details[1].Unpack(request)  # type: ignore[arg-type]
    return [violation.field for violation in request.field_violations]


@pytest.mark.parametrize(
    "message",
    [
        {"completions": [work_pb2.NodeTaskCompletion(token=f"0~flow:0:0:a~{1 << 70}~n")]},
        {"completions": [work_pb2.NodeTaskCompletion(token=f"0~flow:0:0:a~{1 << 31}~n")]},
        {"completions": [work_pb2.NodeTaskCompletion(token="7~flow:0:0:a~1~n")]},
        {"failures": [work_pb2.NodeTaskFailure(token="7~flow:0:0:a~1~n")]},
        {"give_back_tokens": ["7~flow:0:0:a~1~n"]},
        {"renew": True, "held_tokens": ["7~flow:0:0:a~1~n"]},
        {"progress": [work_pb2.NodeTaskProgress(token="7~flow:0:0:a~1~n")]},
        {"logs": [work_pb2.NodeTaskLog(token="rubbish")]},
        {"hello": work_pb2.WorkerHello(worker_id="w2")},
    ],
    ids=["attempt", "high attempt", "completion", "failure", "give-back", "renewal", "progress", "log", "hello"],
)
async def test_invalid_message_ends_only_its_own_stream(ntm: Ntm, worker, message: Any) -> None:  # type: ignore[no-untyped-def]
    good, bad = worker("good"), worker("bad")
    await good.open()
    await bad.open()
    await bad.send(**message)
    await until(lambda: bad.error, "the stream is cut off")
    assert bad.error.code() is grpc.StatusCode.INVALID_ARGUMENT
    await ntm.submit(CHAIN)
    (a,) = await good.assigned()
    await good.complete(a.token, out="1")
    assert await good.assigned(2)


@pytest.mark.parametrize("sequence", [0, -1])
async def test_message_without_its_number_on_the_stream_is_refused(ntm: Ntm, worker: Any, sequence: int) -> None:
    bad = worker("bad")
    await bad.open()
    await bad.call.write(work_pb2.WorkRequest(sequence=sequence, renew=True))
    await until(lambda: bad.error, "the stream is cut off")
    assert bad.error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert bad.error.details().startswith("sequence: ")


async def test_run_retention_out_of_range_is_refused(ntm: Ntm) -> None:
    runs = [
        component_pb2.RunSubmission(flow_id="f", cycle=at, run_id="r", user_id="u", **fields)  # type: ignore[arg-type]
        for at, fields in enumerate(
            (
                {"keep_cycles": -1},
                {"keep_cycles": 10_001},
                {"keep_for": Duration(seconds=59)},
                {"keep_for": Duration(seconds=7 * 86_400 + 1)},
                {"keep_for": Duration(seconds=1 << 60)},
                {"keep_for": Duration(seconds=7 * 86_400, nanos=999_999)},
                {"keep_cycles": 10_000, "keep_for": Duration(seconds=60)},
            )
        )
    ]
    for run in runs:
        run.components.add(component_id="0", plan_digest="p")
    assert await faults(ntm.stub.SubmitComponents(pb2.SubmitComponentsRequest(runs=runs))) == [
        *("runs[0].keep_cycles", "runs[1].keep_cycles"),
        *("runs[2].keep_for", "runs[3].keep_for", "runs[4].keep_for", "runs[5].keep_for"),
    ]


@pytest.mark.parametrize(
    ("hello", "path"),
    [
        ({"node_types": [f"t{at}" for at in range(501)]}, "hello.node_types"),
        ({"incarnation": "i" * 129}, "hello.incarnation"),
        ({"capacity": 10_001}, "hello.capacity"),
        ({"held_tokens": ["7~flow:0:0:a~1~n"]}, "hello.held_tokens[0]"),
    ],
)
async def test_hello_over_the_limits_is_refused(ntm: Ntm, hello: Any, path: str) -> None:
    call = ntm.stub.Work()
    await call.write(work_pb2.WorkRequest(hello=work_pb2.WorkerHello(**{"worker_id": "w1", **hello})))
    assert await faults(call.read()) == [path]


async def test_out_of_range_times_are_refused_and_do_not_break_logs(ntm: Ntm, worker) -> None:  # type: ignore[no-untyped-def]
    part = component_pb2.ComponentSubmission(component_id="0", plan_digest="p1")
    run = component_pb2.RunSubmission(
        flow_id="f", run_id="r", user_id="u", components=[part, part], planned_time=NEVER, begun_at=NEVER
    )
    bad = plan(("x", "out", "y", "in"), ("y", "out", "x", "in"), nodes="z z", digest="d")
    bad.nodes[0].schedule_to_start.CopyFrom(Duration(seconds=-1))
    bad.nodes[0].heartbeat_timeout.CopyFrom(Duration(nanos=1_000_000))
    bad.nodes[0].config_json = "{"
    bad.nodes[1].retry.CopyFrom(
        retry_pb2.RetryPolicy(
            attempts=0,
            initial=Duration(seconds=-1),
            factor=0.5,
            maximum=Duration(seconds=-2),
            jitter=float("nan"),
            non_retryable=[""],
        )
    )
    assert await faults(ntm.stub.SubmitComponents(pb2.SubmitComponentsRequest(runs=[run], plans=[bad]))) == [
        "runs[0].components[1].component_id",
        "runs[0].planned_time",
        "runs[0].begun_at",
        "plans[0].nodes[0].config_json",
        "plans[0].nodes[0].schedule_to_start",
        "plans[0].nodes[0].heartbeat_timeout",
        *(f"plans[0].nodes[1].retry.{name}" for name in ("attempts", "initial", "maximum", "maximum")),
        *(f"plans[0].nodes[1].retry.{name}" for name in ("factor", "jitter", "non_retryable[0]")),
        "plans[0].nodes[1].node_id",
        "plans[0].edges",
    ]
    stop = pb2.StopComponentRequest(flow_id="f", run_id="r", user_id="u", component_id="a/b", deadline=NEVER)
    assert await faults(ntm.stub.StopComponent(stop)) == ["component_id", "deadline"]

    w = worker()
    await w.open()
    await ntm.submit(CHAIN)
    (a,) = await w.assigned()
    await w.send(logs=[work_pb2.NodeTaskLog(token=a.token, message="hm", created_at=NEVER)])
    request = pb2.ListNodeLogsRequest(flow_id="flow", user_id="default")

    async def kept() -> bool:
        lines = (await ntm.stub.ListNodeLogs(request)).logs
        return [(line.message, line.HasField("created_at")) for line in lines] == [("hm", True)]

    await until(kept, "the line is kept, with a time")


async def test_invalid_calls_name_their_faults(ntm: Ntm) -> None:
    stub = ntm.stub
    token = "0~flow:0:0:a~1~n"
    done = work_pb2.NodeTaskCompletion(token="7~flow:0:0:a~1~n")
    offers = [work_pb2.OfferedType(node_type="noop", outputs=[""] * 257)]
    for call, paths in [
        (stub.ClaimNodeTasks(pb2.ClaimNodeTasksRequest(node_types=["a:b"], limit=-1)), 3),
        (stub.ClaimNodeTasks(pb2.ClaimNodeTasksRequest(worker_id="u1", offers=offers)), ["offers[0].outputs"]),
        (stub.RenewLeases(pb2.RenewLeasesRequest(tokens=[token])), ["worker_id"]),
        (stub.RenewLeases(pb2.RenewLeasesRequest(worker_id="u1", tokens=[token] * 501)), ["tokens"]),
        (
            stub.CompleteNodeTasks(pb2.CompleteNodeTasksRequest(worker_id="u1", completions=[done])),
            ["completions[0].token"],
        ),
        (stub.GetComponents(pb2.GetComponentsRequest(runs=[pb2.RunReference()])), 2),
        (stub.ListNodeLogs(pb2.ListNodeLogsRequest(flow_id="f", user_id="u", after_log_id="x")), ["after_log_id"]),
        (stub.ListNodeTasks(pb2.ListNodeTasksRequest()), ["flow_id", "user_id"]),
    ]:
        found = await faults(call)
        assert found == paths if isinstance(paths, list) else len(found) == paths


async def test_invalid_event_subscription_is_refused(ntm: Ntm) -> None:
    ack = pb2.EventAck(partition=0, event_id="soon")
    request = pb2.ReceiveEventsRequest(subscribe=[pb2.EventSubscription(partition=16)], acks=[ack])
    call = ntm.stub.ReceiveEvents()
    await call.write(request)
    assert await faults(call.read()) == ["subscribe[0].partition", "acks[0].event_id"]


async def test_page_of_large_outputs_stays_within_the_message_size(ntm: Ntm) -> None:
    await ntm.submit(plan(nodes=" ".join(f"n{at}" for at in range(5))))
    claim = pb2.ClaimNodeTasksRequest(worker_id="u1", node_types=["noop"], limit=10)
    large = '"' + "x" * 900_000 + '"'
    for each in (await ntm.stub.ClaimNodeTasks(claim)).assignments:
        done = work_pb2.NodeTaskCompletion(token=each.token, outputs=[{"handle": "out", "value_json": large}])  # type: ignore[list-item]
        await ntm.stub.CompleteNodeTasks(pb2.CompleteNodeTasksRequest(worker_id="u1", completions=[done]))
    request = pb2.ListNodeTasksRequest(flow_id="flow", user_id="default", include_outputs=True)
    pages = []
    while True:
        page = await ntm.stub.ListNodeTasks(request)
        pages.append([task.node_id for task in page.node_tasks])
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert pages == [["n0", "n1"], ["n2", "n3"], ["n4"]]


async def test_claimed_node_tasks_fit_into_one_answer(ntm: Ntm) -> None:
    config = '"' + "x" * 250_000 + '"'
    wide = plan(nodes=" ".join(f"n{at}" for at in range(12)))
    for node in wide.nodes:
        node.config_json = config
    await ntm.submit(wide)
    claim = pb2.ClaimNodeTasksRequest(worker_id="u1", node_types=["noop"], limit=20)
    first = (await ntm.stub.ClaimNodeTasks(claim)).assignments
    second = (await ntm.stub.ClaimNodeTasks(claim)).assignments
    assert (len(first), len(second)) == (8, 4)


@pytest.mark.parametrize(
    ("method", "field", "message"),
    [
        ("CompleteNodeTasks", "completions", work_pb2.NodeTaskCompletion),
        ("FailNodeTasks", "failures", work_pb2.NodeTaskFailure),
        ("RenewLeases", "tokens", None),
    ],
)
async def test_calls_of_workers_name_the_worker_and_every_bad_token(
    ntm: Ntm, method: str, field: str, message: type[Any] | None
) -> None:
    tokens = ["rubbish", "0~flow:0:0:a~1~n", "7~flow:0:0:a~1~n"]
    request: Any = getattr(pb2, f"{method}Request")(
        **{field: [message(token=each) for each in tokens] if message else tokens}
    )
    part = ".token" if message else ""
    expected = ["worker_id", f"{field}[0]{part}", f"{field}[2]{part}"]
    assert await faults(getattr(ntm.stub, method)(request)) == expected


async def test_subscription_to_events_with_impossible_numbers_is_refused(ntm: Ntm) -> None:
    call = ntm.stub.ReceiveEvents()
    subscribe = [pb2.EventSubscription(partition=3, epoch=each) for each in (-1, 2**53 - 1, 2**53, 2**63 - 1)]
    await call.write(pb2.ReceiveEventsRequest(subscribe=subscribe, unsubscribe=[15, 16]))
    assert await faults(call.read()) == ["unsubscribe[1]", *(f"subscribe[{at}].epoch" for at in (0, 2, 3))]
