"""Workers that are called: who gets what, what follows when one refuses, breaks off or dies."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import RetryInfo

from tests.rpc.node_task_manager.called import Called, Proxy, Registry, aborting, hanging
from tests.rpc.node_task_manager.conftest import Ntm, Start, plan
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import batch_pb2, cache_pb2, node_task_pb2, work_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.api.registry.v1 import worker_pb2
from tradewind.server.statuses import status_with

Status = grpc.StatusCode
Make = Callable[..., Awaitable[Called]]
PENDING, RUNNING = node_task_pb2.NODE_TASK_STATUS_PENDING, node_task_pb2.NODE_TASK_STATUS_RUNNING
LASTING = {"node_task_manager_lease_seconds": 600, "node_task_manager_called_seconds": 0.2}
"""Leases that no test sees lapse, and changes of the list that are heard of soon."""
COMPLETED, TERMINATED = node_task_pb2.NODE_TASK_STATUS_COMPLETED, node_task_pb2.NODE_TASK_STATUS_TERMINATED


@pytest_asyncio.fixture
async def registry() -> AsyncIterator[Registry]:
    """Lists nobody to begin with."""
    registry = Registry()  # type: ignore[abstract]  # nobody asks it anything else
    await registry.start()
    yield registry
    await registry.stop()


@pytest_asyncio.fixture
async def make(registry: Registry) -> AsyncIterator[Make]:
    """Makes workers that listen; they are listed when the test lists them."""
    made: list[Called] = []

    async def begin(worker_id: str, **options: Any) -> Called:
        made.append(Called(worker_id, **options))
        await made[-1].start()
        return made[-1]

    yield begin
    for each in made:
        await each.stop()


@pytest_asyncio.fixture
async def ntm(start: Start, registry: Registry) -> Ntm:
    """One node task manager that asks the registry."""
    return await start(registry_address=registry.address)


async def is_(
    ntm: Ntm, node_id: str, status: node_task_pb2.NodeTaskStatus.ValueType, **fields: Any
) -> node_task_pb2.NodeTask:
    """Wait until a node task has a status; return it."""
    seen: list[node_task_pb2.NodeTask] = []

    async def there() -> bool:
        seen.append(await ntm.node(node_id))
        return seen[-1].status == status and all(getattr(seen[-1], name) == value for name, value in fields.items())

    await until(there, f"{node_id} is {node_task_pb2.NodeTaskStatus.Name(status)} {fields}")
    return seen[-1]


async def test_node_tasks_are_handed_over_whole_and_what_follows_too(ntm: Ntm, registry: Registry, make: Make) -> None:
    worker = await make("w1")
    registry.workers = [worker.listed()]
    await ntm.submit(plan(("a", "out", "b", "in")), traceparent="00-1-2-01", inputs_json='{"x": 1}')

    (first,) = await worker.has(1)
    assert (first.node_task_id, first.node_type, first.attempt) == ("flow:0:0:a", "noop", 1)
    assert (first.run_inputs_json, first.config_json) == ('{"x": 1}', '{"window":3}')
    assert (first.traceparent, first.HasField("deadline")) == ("00-1-2-01", True)
    request = worker.calls[0]
    assert (request.lease.ToTimedelta().total_seconds(), request.renew_interval.ToTimedelta().total_seconds()) == (
        30,
        10,
    )
    assert (await ntm.node("a")).worker_id == "w1"

    await worker.complete(ntm.stub, first.token, out="7")
    second = (await worker.has(2))[1]
    assert [(each.handle, list(each.values_json)) for each in second.inputs] == [("in", ["7"])]
    await worker.complete(ntm.stub, second.token)
    await is_(ntm, "b", COMPLETED)


async def test_the_least_loaded_gets_the_next(ntm: Ntm, registry: Registry, make: Make) -> None:
    """Half of ten is taken: the one that is idle is the better choice, though it has less room."""
    big, small = await make("big", capacity=10), await make("small", capacity=1)
    registry.workers = [big.listed()]
    await ntm.submit(plan(nodes="a b c d e"))
    await big.has(5)
    await registry.list(big.listed(), small.listed())
    await ntm.submit(plan(nodes="f", digest="p2"), flow_id="next")
    await small.has(1)
    await ntm.submit(plan(nodes="g h", digest="p3"), flow_id="last")
    await big.has(7)
    assert len(small.taken) == 1


def losses(task: node_task_pb2.NodeTask) -> int:
    """Count the attempts whose worker was lost."""
    return sum(each.code == "WORKER_LOST" for each in task.history)


def refusal(detail: Message) -> bytes:
    """Return a status of a worker with one detail."""
    return status_with(Status.INTERNAL, "INTERNAL", "as the test wants", details=[detail]).SerializeToString()


async def refusing(kind: str, make: Make) -> Called:
    """Make a worker that does not take anything, in one of the ways there are."""
    worker = await make("bad", room=0 if kind == "no room" else 1000)
    if kind == "hangs":
        worker.refuse = hanging
    elif kind == "nobody listens":
        await worker.stop()
    elif kind not in ("no room", "says nothing"):
        worker.refuse = aborting(getattr(Status, kind))
    return worker


@pytest.mark.parametrize(
    "kind",
    [
        "no room",
        "RESOURCE_EXHAUSTED",
        "UNAVAILABLE",
        "INTERNAL",
        "UNIMPLEMENTED",
        "nobody listens",
        "says nothing",
        "hangs",
    ],
)
async def test_when_one_does_not_take_it_the_next_is_tried(ntm: Ntm, registry: Registry, make: Make, kind: str) -> None:
    bad, good = await refusing(kind, make), await make("good")
    registry.workers = [good.listed()]
    await ntm.submit(plan(nodes="z", digest="p0"), flow_id="before")
    await good.has(1)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1] if kind == "says nothing" else bad.port
        await registry.list(bad.listed(api_url=f"127.0.0.1:{port}"), good.listed())
        await ntm.submit(plan(nodes="a"))
        # It is the busier one, so the other comes first.
        _, taken = await good.has(2)
        # It is the first attempt still: it did not go back to its queue.
        assert (taken.node_task_id, taken.attempt) == ("flow:0:0:a", 1)
        if kind not in ("nobody listens", "says nothing"):
            assert bad.calls[0].assignments[0].token != taken.token
            assert bad.calls[0].assignments[0].node_task_id == taken.node_task_id
        await good.complete(ntm.stub, taken.token, out="1")
        await is_(ntm, "a", COMPLETED)


async def test_what_nobody_takes_goes_back_to_its_queue_and_is_tried_again(
    ntm: Ntm, registry: Registry, make: Make
) -> None:
    workers = [await make(f"w{at}") for at in range(3)]
    for each in workers:
        each.refuse = aborting(Status.RESOURCE_EXHAUSTED)
    registry.workers = [each.listed() for each in workers]
    await ntm.submit(plan(nodes="a"))
    await until(lambda: all(each.calls for each in workers), "all were tried")
    await is_(ntm, "a", PENDING)

    workers[1].refuse = None
    (taken,) = await workers[1].has(1)
    await workers[1].complete(ntm.stub, taken.token)
    assert losses(await is_(ntm, "a", COMPLETED)) == 0


@pytest.mark.parametrize("details", [b"\xff", refusal(RetryInfo(retry_delay=Duration(seconds=1 << 60)))])
async def test_a_refusal_whose_details_make_no_sense_is_one_all_the_same(
    start: Start, registry: Registry, make: Make, details: bytes
) -> None:
    ntm = await start(registry_address=registry.address, **LASTING)
    worker = await make("w1")
    worker.refuse = aborting(Status.INTERNAL, details)
    registry.workers = [worker.listed()]
    await ntm.submit(plan(nodes="a"))
    await until(lambda: worker.calls, "it is handed over")
    await is_(ntm, "a", PENDING)


async def test_one_that_refuses_again_and_again_is_left_alone_ever_longer(
    ntm: Ntm, registry: Registry, make: Make
) -> None:
    worker = await make("w1")
    worker.refuse = aborting(Status.INTERNAL)
    registry.workers = [worker.listed()]
    await ntm.submit(plan(nodes=" ".join(f"n{at}" for at in range(20))))
    await until(lambda: len(worker.calls) >= 3, "it was tried three times")
    # After the first refusal it is handed one at a time.
    assert [len(call.assignments) for call in worker.calls[1:3]] == [1, 1]
    worker.refuse = None
    assert len(await worker.has(10)) == 10


async def test_a_worker_that_dies_loses_its_lease_and_its_late_result_is_refused(
    start: Start, registry: Registry, make: Make
) -> None:
    """Long before its lease lapses."""
    ntm = await start(registry_address=registry.address, **LASTING)
    dead = await make("dead")
    registry.workers = [dead.listed()]
    await ntm.submit(plan(nodes="a"))
    (first,) = await dead.has(1)
    await dead.stop()
    other = await make("other")
    registry.workers = [other.listed()]

    (second,) = await other.has(1)
    assert second.attempt > first.attempt
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await dead.complete(ntm.stub, first.token, out="1")
    assert refused.value.code() is Status.FAILED_PRECONDITION
    await other.complete(ntm.stub, second.token, out="2")
    ended = await is_(ntm, "a", COMPLETED)
    assert (losses(ended), ended.worker_id) == (1, "other")


async def test_one_that_renews_keeps_what_it_runs_for_many_leases(start: Start, registry: Registry, make: Make) -> None:
    ntm = await start(registry_address=registry.address, node_task_manager_lease_seconds=2)
    worker, other = await make("w1"), await make("w2")
    registry.workers = [worker.listed()]
    await ntm.submit(plan(nodes="a"))
    (taken,) = await worker.has(1)
    registry.workers = [worker.listed(), other.listed()]
    deadlines: list[float] = []

    async def renewed() -> bool:
        request = pb2.ReportNodeTasksRequest(worker_id="w1", held_tokens=[taken.token])
        answer = await ntm.stub.ReportNodeTasks(request)
        assert not answer.losses
        deadlines.append(answer.lease_deadline.ToMilliseconds())
        await asyncio.sleep(0.1)
        return deadlines[-1] > deadlines[0] + 6000

    await until(renewed, "it has renewed for three leases")
    await worker.complete(ntm.stub, taken.token)
    assert (await is_(ntm, "a", COMPLETED)).attempt == 1
    assert not other.taken


async def test_a_lost_worker_that_is_listed_still_is_left_alone(start: Start, registry: Registry, make: Make) -> None:
    ntm = await start(registry_address=registry.address, **LASTING)
    dead, other = await make("dead", capacity=100), await make("other", capacity=1)
    registry.workers = [dead.listed()]
    await ntm.submit(plan(nodes="a"))
    await dead.has(1)
    await registry.list(dead.listed(), other.listed())
    await dead.stop()
    (again,) = await other.has(1)
    assert (again.node_task_id, again.attempt) == ("flow:0:0:a", 2)
    # The dead one has the most room by far.
    await ntm.submit(plan(nodes="b", digest="p2"), flow_id="next")
    await other.complete(ntm.stub, again.token)
    _, taken = await other.has(2)
    assert (taken.node_task_id, taken.attempt) == ("next:0:0:b", 1)


async def test_a_connection_that_comes_back_loses_nothing(start: Start, registry: Registry, make: Make) -> None:
    ntm = await start(registry_address=registry.address, **LASTING, node_task_manager_stream_grace_seconds=60)
    worker, other = await make("w1"), await make("w2")
    proxy = Proxy(worker.port)
    await proxy.start()
    listed = worker.listed(api_url=f"127.0.0.1:{proxy.port}")
    await registry.list(listed)
    await ntm.submit(plan(nodes="a"))
    (taken,) = await worker.has(1)
    await registry.list(listed, other.listed())
    proxy.drop()
    await until(lambda: proxy.connections > 1, "there is another connection")
    # It is given more over that one.
    await registry.list(listed)
    await ntm.submit(plan(nodes="b", digest="p2"), flow_id="next")
    await worker.has(2)
    await worker.complete(ntm.stub, taken.token)
    ended = await is_(ntm, "a", COMPLETED)
    assert (ended.attempt, losses(ended), other.taken) == (1, 0, [])
    proxy.cut()


async def test_a_connection_that_breaks_while_it_is_handed_something_counts_as_a_lost_worker(
    start: Start, registry: Registry, make: Make
) -> None:
    """It may have been taken: whatever breaks workers must not go on to the next without being counted."""
    ntm = await start(registry_address=registry.address, **LASTING)
    broken, other = await make("broken"), await make("other")
    proxy = Proxy(broken.port)
    await proxy.start()

    async def breaks(context: Any) -> None:
        proxy.cut()
        await hanging(context)

    broken.refuse = breaks
    await registry.list(broken.listed(api_url=f"127.0.0.1:{proxy.port}"))
    await ntm.submit(plan(nodes="a"))
    await until(lambda: broken.calls, "it is handed over")
    await registry.list(other.listed())
    (taken,) = await other.has(1)
    assert taken.attempt > 1
    await other.complete(ntm.stub, taken.token)
    assert losses(await is_(ntm, "a", COMPLETED)) == 1


async def test_a_new_process_of_a_worker_has_lost_what_the_one_before_held(
    ntm: Ntm, registry: Registry, make: Make
) -> None:
    worker = await make("w1")
    registry.workers = [worker.listed()]
    await ntm.submit(plan(nodes="a"))
    await worker.has(1)
    registry.workers = [worker.listed(incarnation="i2")]
    again = (await worker.has(2))[1]
    assert (again.node_task_id, again.attempt) == ("flow:0:0:a", 2)
    await worker.complete(ntm.stub, again.token)
    assert losses(await is_(ntm, "a", COMPLETED)) == 1


async def test_a_stop_is_told_and_ends(ntm: Ntm, registry: Registry, make: Make) -> None:
    worker = await make("w1")
    registry.workers = [worker.listed()]
    await ntm.submit(plan(nodes="a"))
    (taken,) = await worker.has(1)
    await ntm.stub.TerminateNodeTask(
        pb2.TerminateNodeTaskRequest(node_task_id="flow:0:0:a", user_id="default", reason="enough", by="ann")
    )
    await until(lambda: worker.terminations, "the worker hears it")
    (termination,) = worker.terminations
    assert (termination.token, termination.stop.reason, termination.stop.by) == (taken.token, "enough", "ann")
    failure = work_pb2.NodeTaskFailure(token=taken.token, terminated=True)
    await ntm.stub.ReportNodeTasks(pb2.ReportNodeTasksRequest(worker_id="w1", failures=[failure]))
    await is_(ntm, "a", TERMINATED)


async def test_a_stop_that_no_worker_hears_ends_after_the_grace(start: Start, registry: Registry, make: Make) -> None:
    ntm = await start(
        registry_address=registry.address, node_task_manager_stop_grace_seconds=0.5, node_task_manager_lease_seconds=2
    )
    worker = await make("w1")
    registry.workers = [worker.listed()]
    await ntm.submit(plan(nodes="a"))
    await worker.has(1)
    await worker.stop()
    await ntm.stub.TerminateNodeTask(pb2.TerminateNodeTaskRequest(node_task_id="flow:0:0:a", user_id="default"))
    await is_(ntm, "a", TERMINATED)


async def test_a_worker_that_drains_gets_nothing_more(ntm: Ntm, registry: Registry, make: Make) -> None:
    leaving, other = await make("leaving"), await make("other")
    registry.workers = [leaving.listed(status=worker_pb2.WORKER_STATUS_DRAINING), other.listed()]
    await ntm.submit(plan(nodes="a b c"))
    await other.has(3)
    assert not leaving.calls


async def test_replicas_share_the_workers_and_one_takes_over_from_the_other(
    start: Start, registry: Registry, make: Make
) -> None:
    first = await start(registry_address=registry.address)
    second = await start(registry_address=registry.address)
    workers = [await make(f"w{at}", capacity=1) for at in range(8)]
    registry.workers = [each.listed() for each in workers]
    await first.submit(plan(nodes=" ".join("abcdefgh")))
    for each in workers:
        await each.has(1)
    # Whoever hears of an end, the one that calls the worker gives it the next.
    await second.submit(plan(nodes=" ".join("abcdefgh"), digest="p2"), flow_id="next")
    for each in workers:
        await each.complete(second.stub, each.taken[0].token)
    for each in workers:
        await each.has(2)
    assert all(len(call.assignments) == 1 for each in workers for call in each.calls)

    # A stop is told by whoever is asked.
    stopped = workers[0].taken[1]
    for at, ntm in enumerate((first, second)):
        running = workers[at].taken[1]
        await ntm.stub.TerminateNodeTask(
            pb2.TerminateNodeTaskRequest(node_task_id=running.node_task_id, user_id="default")
        )
    await until(lambda: workers[0].terminations and workers[1].terminations, "both hear of their stops")
    assert workers[0].terminations[0].token == stopped.token

    await first.server.stop()
    await second.submit(plan(nodes=" ".join("abcdefgh"), digest="p3"), flow_id="last")
    for each in workers:
        await each.complete(second.stub, each.taken[1].token)
    for each in workers:
        await each.has(3)


async def test_what_a_worker_says_in_one_call_takes_effect(ntm: Ntm, registry: Registry, make: Make) -> None:
    worker = await make("w1", capacity=4)
    registry.workers = [worker.listed()]
    await ntm.submit(plan(nodes="a b c d"))
    tokens = {each.node_id: each.token for each in await worker.has(4)}
    await registry.list()
    request = pb2.ReportNodeTasksRequest(
        worker_id="w1",
        completions=[work_pb2.NodeTaskCompletion(token=tokens["a"])],
        failures=[work_pb2.NodeTaskFailure(token=tokens["b"], error={"message": "broke"})],  # type: ignore[arg-type]
        give_back_tokens=[tokens["c"]],
        held_tokens=[tokens["d"]],
        progress=[work_pb2.NodeTaskProgress(token=tokens["d"], progress=40)],
        logs=[work_pb2.NodeTaskLog(token=tokens["d"], level="INFO", message="so far")],
    )
    for _ in range(2):
        # Saying it again is fine.
        assert not (await ntm.stub.ReportNodeTasks(request)).losses
    await is_(ntm, "a", COMPLETED)
    assert (await ntm.node("b")).error.message == "broke"
    assert (await ntm.node("c")).status == PENDING
    await is_(ntm, "d", RUNNING, progress=40)

    request = pb2.ReportNodeTasksRequest(worker_id="w1", completions=[work_pb2.NodeTaskCompletion(token=tokens["c"])])
    (loss,) = (await ntm.stub.ReportNodeTasks(request)).losses
    assert loss.token == tokens["c"]


async def test_what_names_no_lease_is_lost_and_keeps_nothing_else_back(
    ntm: Ntm, registry: Registry, make: Make
) -> None:
    """Whoever reaches a worker may have handed it anything."""
    worker = await make("w1")
    registry.workers = [worker.listed()]
    await ntm.submit(plan(nodes="a"))
    (a,) = await worker.has(1)
    names = ["rubbish", "", "9~flow:0:0:a~1~n", f"0~flow:0:0:a~{1 << 70}~n"]
    request = pb2.ReportNodeTasksRequest(
        worker_id="w1",
        completions=[work_pb2.NodeTaskCompletion(token=token) for token in (names[0], a.token, names[2])],
        failures=[work_pb2.NodeTaskFailure(token=names[1])],
        give_back_tokens=[names[1]],
        held_tokens=names,
        progress=[work_pb2.NodeTaskProgress(token=names[3], progress=40)],
        logs=[work_pb2.NodeTaskLog(token=names[0], level="INFO", message="so far")],
    )
    answer = await ntm.stub.ReportNodeTasks(request)
    assert sorted(loss.token for loss in answer.losses) == sorted(names)
    await is_(ntm, "a", COMPLETED)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"worker_id": "no worker"}, "worker_id"),
        ({"logs": [work_pb2.NodeTaskLog()] * 1001}, "logs"),
    ],
)
async def test_bad_reports_are_refused(ntm: Ntm, fields: dict[str, Any], path: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await ntm.stub.ReportNodeTasks(pb2.ReportNodeTasksRequest(**{"worker_id": "w1", **fields}))
    assert refused.value.code() is Status.INVALID_ARGUMENT
    assert refused.value.details().startswith(f"{path}: ")  # type: ignore[union-attr]


async def test_cached_results_count_for_the_process_that_gave_them(ntm: Ntm, registry: Registry, make: Make) -> None:
    worker = await make("w1")
    registry.workers = [worker.listed()]

    async def submitted() -> str:
        options = batch_pb2.TaskOptions(cache=cache_pb2.CacheUse(name="screening"))
        request = batch_pb2.SubmitTaskRequest(user_id="ann", node_type="noop", options=options)
        return (await ntm.stub.SubmitTask(request)).task.node_task_id

    await submitted()
    await worker.complete(ntm.stub, (await worker.has(1))[0].token, out="1")
    task_id = await submitted()

    async def cached() -> bool:
        request = batch_pb2.GetTaskRequest(task_id=task_id, user_id="ann")
        return (await ntm.stub.GetTask(request)).task.cached_in == "screening"

    await until(cached, "the second one is answered")
    await registry.list(worker.listed(incarnation="another"))
    await submitted()
    await worker.has(2)
