"""The Work stream: assignments one way, outcomes and renewals the other."""

import grpc
import pytest

from tests.rpc.node_task_manager.conftest import Ntm, Start, plan
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import component_pb2, node_task_pb2, work_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2

CHAIN = plan(("a", "out", "b", "price"))


async def test_chain_runs_over_a_stream_with_inputs_by_handle(ntm: Ntm, worker) -> None:  # type: ignore[no-untyped-def]
    w = worker()
    await w.open()
    result = await ntm.submit(CHAIN, inputs_json='{"symbol":"IBM"}', traceparent="00-ab-cd-01")
    assert result.outcome == component_pb2.SUBMIT_OUTCOME_ACCEPTED
    (a,) = await w.assigned(1)
    assert (a.node_id, a.node_type, a.attempt, a.config_json) == ("a", "noop", 1, '{"window":3}')
    assert (a.run_inputs_json, a.traceparent, a.user_id) == ('{"symbol":"IBM"}', "00-ab-cd-01", "default")
    await w.complete(a.token, out='{"x":1}')
    _, b = await w.assigned(2)
    assert [(i.handle, list(i.values_json)) for i in b.inputs] == [("price", ['{"x":1}'])]
    assert b.run_inputs_json == ""
    await w.complete(b.token, out="2")
    task = await ntm.node("b", include_outputs=True)
    assert task.status == node_task_pb2.NODE_TASK_STATUS_COMPLETED
    assert [(o.handle, o.value_json) for o in task.outputs] == [("out", "2")]


async def test_worker_that_names_a_type_twice_gets_no_more_than_it_has_room_for(  # type: ignore[no-untyped-def]
    ntm: Ntm, worker
) -> None:
    await ntm.submit(plan(nodes="a b c d"))
    w = worker(capacity=2)
    w.node_types = ["noop", "noop"]
    await w.open()
    first, second = await w.assigned(2)
    await w.complete(first.token)
    await w.complete(second.token)
    assert sorted(each.node_id for each in await w.assigned(4)) == ["a", "b", "c", "d"]


async def test_broken_stream_loses_its_node_task_and_its_late_result_is_refused(  # type: ignore[no-untyped-def]
    ntm: Ntm, worker
) -> None:
    first, second = worker("w1"), worker("w2")
    await first.open()
    await ntm.submit(CHAIN)
    (a,) = await first.assigned()
    await first.close()
    await second.open()
    (again,) = await second.assigned()
    assert (again.node_task_id, again.attempt) == (a.node_task_id, 2)
    await first.open()
    await first.complete(a.token, out="1")
    await until(lambda: first.losses, "the late result is refused")
    assert first.losses[0].token == a.token
    await second.complete(again.token, out="2")
    assert (await ntm.node("a", include_outputs=True)).outputs[0].value_json == "2"


async def test_reconnecting_worker_keeps_the_node_tasks_it_names(start: Start, worker) -> None:  # type: ignore[no-untyped-def]
    ntm = await start(node_task_manager_stream_grace_seconds=30)
    w = worker(at=ntm)
    await w.open()
    await ntm.submit(plan(nodes="a b"))
    a, b = await w.assigned(2)
    await w.close()
    await w.open(a.token)
    await until(lambda: len(w.assignments) >= 3, "what it did not name is given out again")
    assert (w.assignments[2].node_id, w.assignments[2].attempt) == ("b", 2)
    await w.complete(a.token, out="1")
    assert (await ntm.node("a")).status == node_task_pb2.NODE_TASK_STATUS_COMPLETED
    await w.complete(b.token, out="1")
    await until(lambda: w.losses, "the attempt that was given back is refused")


async def test_worker_gets_no_more_than_its_capacity(ntm: Ntm, worker) -> None:  # type: ignore[no-untyped-def]
    w = worker(capacity=2)
    await w.open()
    await ntm.submit(plan(nodes="a b c d e"))
    first = list(await w.assigned(2))
    await w.acknowledged(await w.send())
    assert len(w.assignments) == 2
    await w.complete(first[0].token, out="1")
    await w.assigned(3)


async def test_draining_worker_gives_back_its_node_task_and_gets_no_new_one(ntm: Ntm, worker) -> None:  # type: ignore[no-untyped-def]
    leaving, staying = worker("w1"), worker("w2", capacity=1)
    await leaving.open()
    await ntm.submit(plan(nodes="a"))
    (a,) = await leaving.assigned()
    await staying.open()
    await leaving.send(draining=True, give_back_tokens=[a.token])
    (again,) = await staying.assigned()
    assert again.node_id == "a"


async def test_invalid_token_or_missing_hello_ends_only_its_own_stream(ntm: Ntm, worker) -> None:  # type: ignore[no-untyped-def]
    good, bad, mute = worker("good"), worker("bad"), worker("mute")
    await good.open()
    await bad.open()
    await bad.send(completions=[work_pb2.NodeTaskCompletion(token="rubbish")])
    await until(lambda: bad.error, "the stream of rubbish is cut off")
    assert bad.error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "completions[0].token" in bad.error.details()
    mute.call = mute.stub.Work()
    await mute.call.write(work_pb2.WorkRequest())
    with pytest.raises(grpc.aio.AioRpcError, match="hello"):
        await mute.call.read()
    await ntm.submit(CHAIN)
    assert await good.assigned()


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("{not json", "INVALID_OUTPUT"),
        ("NaN", "INVALID_OUTPUT"),
        ('"' + "x" * 1024 * 1024 + '"', "OUTPUT_TOO_LARGE"),
        ('"' + "é" * 512 * 1024 + '"', "OUTPUT_TOO_LARGE"),
    ],
)
async def test_invalid_or_too_large_output_fails_the_node(ntm: Ntm, worker, value: str, code: str) -> None:  # type: ignore[no-untyped-def]
    w = worker()
    await w.open()
    await ntm.submit(CHAIN)
    (a,) = await w.assigned()
    await w.complete(a.token, out=value)
    task = await ntm.node("a")
    assert (task.status, task.error.code) == (node_task_pb2.NODE_TASK_STATUS_FAILED, code)
    assert (await ntm.node("b")).reason == 'node "a" failed'


async def test_duplicate_output_handle_fails_the_node(ntm: Ntm, worker) -> None:  # type: ignore[no-untyped-def]
    w = worker()
    await w.open()
    await ntm.submit(CHAIN)
    (a,) = await w.assigned()
    outputs = [node_task_pb2.Output(handle="out", value_json=value) for value in ("1", "2")]
    await w.acknowledged(await w.send(completions=[work_pb2.NodeTaskCompletion(token=a.token, outputs=outputs)]))
    task = await ntm.node("a")
    assert (task.error.code, task.error.message) == ("INVALID_OUTPUT", 'output "out" was emitted twice')


async def test_large_values_reach_the_successor_and_inputs_beyond_3_mib_fail_it(ntm: Ntm, worker) -> None:  # type: ignore[no-untyped-def]
    w = worker()
    await w.open()
    large = '"' + "x" * (1024 * 1024 - 10) + '"'
    edges = [(f"s{at}", "out", "join", f"in{at}") for at in range(4)]
    await ntm.submit(plan(*edges, ("s0", "out", "one", "in")))
    for source in list(await w.assigned(4)):
        await w.complete(source.token, out=large)
    await until(lambda: any(a.node_id == "one" for a in w.assignments), "the large value arrives")
    one = next(a for a in w.assignments if a.node_id == "one")
    assert one.inputs[0].values_json == [large]

    async def failed() -> bool:
        return (await ntm.node("join")).status == node_task_pb2.NODE_TASK_STATUS_FAILED

    await until(failed, "the join fails")
    error = (await ntm.node("join")).error
    assert error.code == "INPUT_TOO_LARGE"
    assert error.message.endswith("the limit is 3 MiB: store large values elsewhere and emit references")


async def test_a_stop_reaches_the_worker_and_ends_the_component(ntm: Ntm, worker) -> None:  # type: ignore[no-untyped-def]
    w = worker()
    await w.open()
    await ntm.submit(CHAIN)
    (a,) = await w.assigned()
    stop = pb2.StopComponentRequest(flow_id="flow", run_id="r0", user_id="default", reason="enough", by="ann")
    answer = await ntm.stub.StopComponent(stop)
    assert (answer.skipped, answer.terminating) == (1, 1)
    await until(lambda: any(r.terminations for r in w.responses), "the worker is termination to stop")
    (termination,) = [t for r in w.responses for t in r.terminations]
    assert (termination.token, termination.stop.reason, termination.stop.by, termination.grace.seconds) == (
        a.token,
        "enough",
        "ann",
        10,
    )
    await w.acknowledged(await w.send(failures=[work_pb2.NodeTaskFailure(token=a.token, terminated=True)]))
    task = await ntm.node("a")
    assert (task.status, task.reason) == (node_task_pb2.NODE_TASK_STATUS_TERMINATED, "enough")


async def test_ignored_stop_is_enforced_by_the_reaper(start: Start, worker) -> None:  # type: ignore[no-untyped-def]
    ntm = await start(node_task_manager_stop_grace_seconds=0.1, node_task_manager_lease_seconds=0.5)
    w = worker(at=ntm)
    await w.open()
    await ntm.submit(CHAIN)
    await w.assigned()
    request = pb2.TerminateNodeTaskRequest(node_task_id="flow:0:0:a", user_id="default", reason="no")
    await ntm.stub.TerminateNodeTask(request)

    async def over() -> bool:
        return (await ntm.node("a")).status == node_task_pb2.NODE_TASK_STATUS_TERMINATED

    await until(over, "the reaper closes it")
    assert (await ntm.node("b")).status == node_task_pb2.NODE_TASK_STATUS_SKIPPED


async def test_a_newer_stream_of_the_same_worker_replaces_the_older(ntm: Ntm, worker) -> None:  # type: ignore[no-untyped-def]
    older, newer = worker("w1"), worker("w1")
    await older.open()
    await newer.open()
    await until(lambda: older.error, "the older stream ends")
    assert older.error.code() is grpc.StatusCode.FAILED_PRECONDITION
    await ntm.submit(CHAIN)
    assert await newer.assigned()


async def test_renewal_resends_node_tasks_it_does_not_name(start: Start, worker) -> None:  # type: ignore[no-untyped-def]
    ntm = await start(node_task_manager_lease_seconds=30)
    w = worker(at=ntm)
    await w.open()
    welcome = w.responses[0].welcome
    assert (welcome.lease.seconds, welcome.renew_interval.seconds) == (30, 10)
    await ntm.submit(plan(nodes="a b"))
    a, b = list(await w.assigned(2))

    async def sent_again() -> bool:
        await w.send(renew=True, held_tokens=[a.token])
        return any(each.token == b.token for each in w.assignments[2:])

    await until(sent_again, "the unnamed node task is sent again with the same token")


async def test_work_submitted_at_one_replica_goes_to_a_worker_at_another(  # type: ignore[no-untyped-def]
    ntm: Ntm, start: Start, worker
) -> None:
    other = await start()
    w = worker(at=other)
    await w.open()
    await ntm.submit(CHAIN)
    (a,) = await w.assigned()
    stop = pb2.StopComponentRequest(flow_id="flow", run_id="r0", user_id="default", reason="enough")
    await ntm.stub.StopComponent(stop)
    await until(lambda: any(r.terminations for r in w.responses), "the stop crosses to the other replica")
    await w.complete(a.token, out="1")
    assert (await ntm.node("a")).status == node_task_pb2.NODE_TASK_STATUS_COMPLETED


async def test_worker_of_stopped_server_continues_at_another_replica(  # type: ignore[no-untyped-def]
    start: Start, worker
) -> None:
    ntm, other = await start(node_task_manager_stream_grace_seconds=30), await start()
    w = worker(at=ntm)
    await w.open()
    await ntm.submit(CHAIN)
    (a,) = await w.assigned()
    await ntm.server.stop()
    await until(lambda: w.error, "the stream ends")
    assert w.error.code() is grpc.StatusCode.UNAVAILABLE
    w.stub = other.stub
    await w.open(a.token)
    await w.complete(a.token, out="1")
    await w.assigned(2)


async def test_progress_and_logs_are_kept(ntm: Ntm, worker) -> None:  # type: ignore[no-untyped-def]
    w = worker()
    await w.open()
    await ntm.submit(CHAIN)
    (a,) = await w.assigned()
    await w.send(
        progress=[work_pb2.NodeTaskProgress(token=a.token, progress=40, message="averaging")],
        logs=[work_pb2.NodeTaskLog(token=a.token, level="warning", message="hm")],
    )

    async def kept() -> bool:
        return (await ntm.node("a")).progress == 40

    await until(kept, "the progress is kept")
    logs = (await ntm.stub.ListNodeLogs(pb2.ListNodeLogsRequest(flow_id="flow", user_id="default"))).logs
    assert [(line.node_id, line.level, line.message) for line in logs] == [("a", "WARNING", "hm")]
