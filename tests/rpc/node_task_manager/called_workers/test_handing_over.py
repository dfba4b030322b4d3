"""Called workers: who gets which node tasks, and what happens when a worker refuses, is told to stop or drains."""

import socket

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import RetryInfo

from tests.rpc.node_task_manager.called_workers.workers import (
    COMPLETED,
    LASTING,
    PENDING,
    TERMINATED,
    Called,
    Make,
    Registry,
    Status,
    aborting,
    give_a,
    hanging,
    losses,
    until_node,
)
from tests.rpc.node_task_manager.conftest import Ntm, Start, plan
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import batch_pb2, cache_pb2, work_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.api.registry.v1 import worker_pb2
from tradewind.server.statuses import status_with


async def test_called_worker_receives_complete_node_tasks_and_successors(
    ntm: Ntm, registry: Registry, make: Make
) -> None:
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
    assert request.sent_at.ToMilliseconds() < first.deadline.ToMilliseconds()
    assert request.sent_at.seconds > first.deadline.seconds - 600
    assert (await ntm.node("a")).worker_id == "w1"

    await worker.complete(ntm.stub, first.token, out="7")
    second = (await worker.has(2))[1]
    assert [(each.handle, list(each.values_json)) for each in second.inputs] == [("in", ["7"])]
    await worker.complete(ntm.stub, second.token)
    await until_node(ntm, "b", COMPLETED)


async def test_least_loaded_worker_gets_next_node_task(ntm: Ntm, registry: Registry, make: Make) -> None:
    """A worker with half of its ten places taken is passed over for an idle one, though the idle one has less room."""
    big, small = await make("big", capacity=10), await make("small", capacity=1)
    registry.workers = [big.listed()]
    await ntm.submit(plan(nodes="a b c d e"))
    await big.has(5)
    await registry.list(big.listed(), small.listed())
    await ntm.submit(plan(nodes="f", digest="p2"), flow_id="next")
    await small.has(1)
    await ntm.submit(plan(nodes="g h", digest="p3"), flow_id="last")
    await big.has(7)
    assert len(small.accepted) == 1


def refusal(detail: Message) -> bytes:
    """Return a status of a worker with one detail."""
    return status_with(Status.INTERNAL, "INTERNAL", "as the test wants", details=[detail]).SerializeToString()


async def refusing(kind: str, make: Make) -> Called:
    """Make a worker that takes nothing and refuses in a given way."""
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
async def test_refused_node_task_is_offered_to_the_next_worker(
    ntm: Ntm, registry: Registry, make: Make, kind: str
) -> None:
    bad, good = await refusing(kind, make), await make("good")
    registry.workers = [good.listed()]
    await ntm.submit(plan(nodes="z", digest="p0"), flow_id="before")
    await good.has(1)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1] if kind == "says nothing" else bad.port
        await registry.list(bad.listed(api_url=f"127.0.0.1:{port}"), good.listed())
        await ntm.submit(plan(nodes="a"))
        # This worker is the busier one, so the other is called first.
        _, assignment = await good.has(2)
        # This is still the first attempt: the node task did not go back to its queue.
        assert (assignment.node_task_id, assignment.attempt) == ("flow:0:0:a", 1)
        if kind not in ("nobody listens", "says nothing"):
            assert bad.calls[0].assignments[0].token != assignment.token
            assert bad.calls[0].assignments[0].node_task_id == assignment.node_task_id
        await good.complete(ntm.stub, assignment.token, out="1")
        await until_node(ntm, "a", COMPLETED)


async def test_node_task_refused_by_all_workers_is_requeued_and_retried(
    ntm: Ntm, registry: Registry, make: Make
) -> None:
    workers = [await make(f"w{at}") for at in range(3)]
    for each in workers:
        each.refuse = aborting(Status.RESOURCE_EXHAUSTED)
    registry.workers = [each.listed() for each in workers]
    await ntm.submit(plan(nodes="a"))
    await until(lambda: all(each.calls for each in workers), "all were tried")
    await until_node(ntm, "a", PENDING)

    workers[1].refuse = None
    (assignment,) = await workers[1].has(1)
    await workers[1].complete(ntm.stub, assignment.token)
    assert losses(await until_node(ntm, "a", COMPLETED)) == 0


@pytest.mark.parametrize("details", [b"\xff", refusal(RetryInfo(retry_delay=Duration(seconds=1 << 60)))])
async def test_refusal_with_invalid_details_counts_as_a_refusal(
    start: Start, registry: Registry, make: Make, details: bytes
) -> None:
    ntm = await start(registry_address=registry.address, **LASTING)
    worker = await make("w1")
    worker.refuse = aborting(Status.INTERNAL, details)
    registry.workers = [worker.listed()]
    await ntm.submit(plan(nodes="a"))
    await until(lambda: worker.calls, "it is handed over")
    await until_node(ntm, "a", PENDING)


async def test_refusing_worker_gets_one_node_task_at_a_time_until_it_accepts(
    ntm: Ntm, registry: Registry, make: Make
) -> None:
    worker = await make("w1")
    worker.refuse = aborting(Status.INTERNAL)
    registry.workers = [worker.listed()]
    await ntm.submit(plan(nodes=" ".join(f"n{at}" for at in range(20))))
    await until(lambda: len(worker.calls) >= 3, "it was tried three times")
    # After the first refusal it is handed one node task at a time.
    assert [len(call.assignments) for call in worker.calls[1:3]] == [1, 1]
    worker.refuse = None
    assert len(await worker.has(10)) == 10


async def test_stop_reaches_called_worker_and_terminates_node_task(ntm: Ntm, registry: Registry, make: Make) -> None:
    worker = await make("w1")
    assignment = await give_a(ntm, registry, worker)
    await ntm.stub.TerminateNodeTask(
        pb2.TerminateNodeTaskRequest(node_task_id="flow:0:0:a", user_id="default", reason="enough", by="ann")
    )
    await until(lambda: worker.terminations, "the worker hears it")
    (termination,) = worker.terminations
    assert (termination.token, termination.stop.reason, termination.stop.by) == (assignment.token, "enough", "ann")
    failure = work_pb2.NodeTaskFailure(token=assignment.token, terminated=True)
    await ntm.stub.ReportNodeTasks(pb2.ReportNodeTasksRequest(worker_id="w1", failures=[failure]))
    await until_node(ntm, "a", TERMINATED)


async def test_stop_of_unreachable_worker_ends_after_the_grace(start: Start, registry: Registry, make: Make) -> None:
    ntm = await start(
        registry_address=registry.address, node_task_manager_stop_grace_seconds=0.5, node_task_manager_lease_seconds=2
    )
    worker = await make("w1")
    await give_a(ntm, registry, worker)
    await worker.stop()
    await ntm.stub.TerminateNodeTask(pb2.TerminateNodeTaskRequest(node_task_id="flow:0:0:a", user_id="default"))
    await until_node(ntm, "a", TERMINATED)


async def test_draining_worker_gets_no_node_tasks(ntm: Ntm, registry: Registry, make: Make) -> None:
    leaving, other = await make("leaving"), await make("other")
    registry.workers = [leaving.listed(status=worker_pb2.WORKER_STATUS_DRAINING), other.listed()]
    await ntm.submit(plan(nodes="a b c"))
    await other.has(3)
    assert not leaving.calls


async def test_replicas_share_called_workers_and_take_over_from_each_other(
    start: Start, registry: Registry, second_registry: Registry, make: Make
) -> None:
    first = await start(registry_address=registry.address, node_task_manager_called_seconds=0.2)
    second = await start(registry_address=second_registry.address, node_task_manager_called_seconds=0.2)
    workers = [await make(f"w{at}", capacity=1) for at in range(8)]
    # Until the replicas know of each other, both call all workers; draining workers have no room meanwhile.
    for status in (worker_pb2.WORKER_STATUS_DRAINING, worker_pb2.WORKER_STATUS_ACTIVE):
        for directory in (registry, second_registry):
            await directory.list(*(worker.listed(status=status) for worker in workers))
    await first.submit(plan(nodes=" ".join("abcdefgh")))
    for each in workers:
        await each.has(1)
    # Whichever replica hears of an end, the one that calls the worker hands it the next node task.
    await second.submit(plan(nodes=" ".join("abcdefgh"), digest="p2"), flow_id="next")
    for each in workers:
        await each.complete(second.stub, each.accepted[0].token)
    for each in workers:
        await each.has(2)
    assert all(len(call.assignments) == 1 for each in workers for call in each.calls)

    # Whichever replica is asked for a stop, the worker is told.
    stopped = workers[0].accepted[1]
    for at, ntm in enumerate((first, second)):
        running = workers[at].accepted[1]
        await ntm.stub.TerminateNodeTask(
            pb2.TerminateNodeTaskRequest(node_task_id=running.node_task_id, user_id="default")
        )
    await until(lambda: workers[0].terminations and workers[1].terminations, "both hear of their stops")
    assert workers[0].terminations[0].token == stopped.token

    await first.server.stop()
    await second.submit(plan(nodes=" ".join("abcdefgh"), digest="p3"), flow_id="last")
    for each in workers:
        await each.complete(second.stub, each.accepted[1].token)
    for each in workers:
        await each.has(3)


async def test_cached_results_are_not_used_for_a_new_worker_process(ntm: Ntm, registry: Registry, make: Make) -> None:
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
