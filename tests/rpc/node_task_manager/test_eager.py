"""Node tasks that a worker begins by itself, over its stream."""

import itertools
from collections.abc import Callable

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from tests.rpc.node_task_manager.conftest import Ntm, RawWorker, Start, plan
from tests.rpc.node_task_manager.test_ad_hoc import submit_batch
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import config_pb2, node_task_pb2, work_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2

NewWorker = Callable[..., RawWorker]
CHAIN = plan(("a", "out", "b", "x"), ("b", "out", "c", "x"))
COMPLETED = node_task_pb2.NODE_TASK_STATUS_COMPLETED
RUNNING = node_task_pb2.NODE_TASK_STATUS_RUNNING


async def open_worker(worker: NewWorker, capacity: int = 10) -> RawWorker:
    w = worker(capacity=capacity)
    w.eager = True
    await w.open()
    return w


def own(node_id: str) -> str:
    return f"0~flow:0:0:{node_id}~1~0{node_id}"


def end(token: str, begins: str = "", value: str = "1") -> work_pb2.NodeTaskCompletion:
    outputs = [node_task_pb2.Output(handle="out", value_json=value)]
    return work_pb2.NodeTaskCompletion(token=token, outputs=outputs, eager_token=begins)


async def send(w: RawWorker, *completions: work_pb2.NodeTaskCompletion, **fields: object) -> None:
    await w.acknowledged(await w.send(completions=completions, **fields))


async def is_cut_off(w: RawWorker) -> None:
    await until(lambda: w.error, "the stream is cut off")
    assert w.error is not None
    assert w.error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "completions[0].eager_token" in (w.error.details() or "")


async def test_assignment_lists_eager_steps(ntm: Ntm, worker: NewWorker) -> None:
    w = await open_worker(worker)
    await ntm.submit(CHAIN)
    (a,) = await w.assigned()
    assert [(each.after_node_id, each.handle, each.node_id, each.input_handle) for each in a.eager_steps] == [
        ("a", "out", "b", "x"),
        ("b", "out", "c", "x"),
    ]
    step = a.eager_steps[0]
    assert (step.node_type, step.config_json, step.timeout.seconds) == ("noop", '{"window":3}', 300)


async def test_worker_without_eager_offer_gets_no_eager_steps(ntm: Ntm, worker: NewWorker) -> None:
    w = worker()
    await w.open()
    await ntm.submit(CHAIN)
    (a,) = await w.assigned()
    assert not a.eager_steps


async def test_limits_prevent_eager_steps(ntm: Ntm, worker: NewWorker) -> None:
    w = await open_worker(worker)
    config, mask = config_pb2.SystemConfig(max_running_per_user=5), FieldMask(paths=["max_running_per_user"])
    await ntm.stub.UpdateConfig(config_pb2.UpdateConfigRequest(config=config, update_mask=mask))
    await ntm.submit(CHAIN)
    (a,) = await w.assigned()
    assert not a.eager_steps
    await send(w, end(a.token, own("b")))
    (loss,) = w.losses
    assert (loss.token, loss.reason) == (own("b"), "limits are set, so it has to wait for its turn")
    assert (await w.assigned(2))[1].node_id == "b"


async def test_one_message_completes_a_whole_chain(ntm: Ntm, worker: NewWorker) -> None:
    w = await open_worker(worker)
    await ntm.submit(CHAIN)
    (a,) = await w.assigned()
    # The order in the message does not matter: each says which it follows from, and that decides.
    await send(w, end(own("c"), value="3"), end(a.token, own("b")), end(own("b"), own("c"), "2"))
    assert len(w.assignments) == 1
    assert not w.losses
    for node_id, value in zip("abc", "123", strict=True):
        task = await ntm.node(node_id, include_outputs=True)
        assert (task.status, task.attempt, task.worker_id) == (COMPLETED, 1, w.worker_id)
        assert task.outputs[0].value_json == value


async def test_failed_eager_node_ends_the_chain(ntm: Ntm, worker: NewWorker) -> None:
    w = await open_worker(worker)
    await ntm.submit(CHAIN)
    (a,) = await w.assigned()
    error = node_task_pb2.NodeTaskError(code="NODE_ERROR", message="it broke")
    await send(w, end(a.token, own("b")), failures=[work_pb2.NodeTaskFailure(token=own("b"), error=error)])
    assert (await ntm.node("b")).error.message == "it broke"
    assert (await ntm.node("c")).status == node_task_pb2.NODE_TASK_STATUS_SKIPPED


async def test_running_eager_node_takes_room_and_can_be_renewed_and_completed(ntm: Ntm, worker: NewWorker) -> None:
    w = await open_worker(worker, capacity=1)
    await ntm.submit(CHAIN)
    await ntm.submit(plan(nodes="z", digest="p2"), cycle=1, run_id="r1")
    (a,) = await w.assigned()
    await send(w, end(a.token, own("b")))
    assert (await ntm.node("b")).status == RUNNING
    await w.acknowledged(await w.send(renew=True, held_tokens=[own("b")]))
    assert len(w.assignments) == 1
    assert not w.losses
    await send(w, end(own("b"), own("c")), end(own("c")))
    assert (await w.assigned(2))[1].node_id == "z"
    assert (await ntm.node("c")).status == COMPLETED


async def test_refused_eager_node_is_a_loss_and_takes_no_room(ntm: Ntm, worker: NewWorker) -> None:
    w = await open_worker(worker, capacity=1)
    await ntm.submit(CHAIN)
    (a,) = await w.assigned()
    await send(w, end(a.token), end("0~flow:0:0:a~1~older", own("c")))
    assert {loss.token for loss in w.losses} == {"0~flow:0:0:a~1~older", own("c")}
    (_, b) = await w.assigned(2)
    assert b.node_id == "b"


async def test_stop_of_eager_node_names_its_own_token(ntm: Ntm, worker: NewWorker) -> None:
    w = await open_worker(worker)
    await ntm.submit(CHAIN)
    (a,) = await w.assigned()
    await send(w, end(a.token, own("b")))
    request = pb2.StopComponentRequest(flow_id="flow", run_id="r0", user_id="default", reason="enough")
    await ntm.stub.StopComponent(request)
    await until(lambda: any(r.terminations for r in w.responses), "it is termination to stop")
    (termination,) = [each for r in w.responses for each in r.terminations]
    assert termination.token == own("b")


async def test_eager_node_of_broken_stream_runs_on_another_worker(ntm: Ntm, worker: NewWorker) -> None:
    w, other = await open_worker(worker), worker("w2")
    await ntm.submit(CHAIN)
    (a,) = await w.assigned()
    await send(w, end(a.token, own("b")))
    await w.close()
    await other.open()
    (b,) = await other.assigned()
    assert (b.node_id, b.attempt) == ("b", 2)
    assert list(b.inputs[0].values_json) == ["1"]


async def test_a_long_chain_is_stored_as_a_whole(ntm: Ntm, worker: NewWorker) -> None:
    names = [f"n{at}" for at in range(70)]
    w = await open_worker(worker)
    await ntm.submit(plan(*((a, "out", b, "x") for a, b in itertools.pairwise(names))))
    (first,) = await w.assigned()
    assert len(first.eager_steps) == 64
    tokens = [first.token, *map(own, names[1:65])]
    await send(w, *(end(token, begins) for token, begins in zip(tokens, [*tokens[1:], ""], strict=True)))
    assert not w.losses
    assert (await w.assigned(2))[1].node_id == "n65"


@pytest.mark.parametrize(
    "token",
    ["rubbish", "1~flow:0:0:b~1~x", "0~other:0:0:b~1~x", "0~flow:0:1:b~1~x", "0~flow:0:0:b~2~x", "0~flow:0:0:b~1~x y"],
)
async def test_impossible_eager_token_ends_the_stream(ntm: Ntm, worker: NewWorker, token: str) -> None:
    w = await open_worker(worker)
    await ntm.submit(CHAIN)
    (a,) = await w.assigned()
    await w.send(completions=[end(a.token, token)])
    await is_cut_off(w)


async def test_ring_of_eager_tokens_ends_the_stream(ntm: Ntm, worker: NewWorker) -> None:
    w = await open_worker(worker)
    await ntm.submit(CHAIN)
    (a,) = await w.assigned()
    await w.send(completions=[end(a.token, own("b")), end(own("b"), a.token)])
    await is_cut_off(w)


async def test_eager_token_without_a_stream_is_refused(ntm: Ntm) -> None:
    request = pb2.CompleteNodeTasksRequest(worker_id="w", completions=[end("0~flow:0:0:a~1~n", own("b"))])
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await ntm.stub.CompleteNodeTasks(request)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "only a Work stream" in (error.value.details() or "")


async def test_item_of_a_large_batch_runs_on_an_eager_worker_of_another_replica(
    ntm: Ntm, start: Start, worker: NewWorker
) -> None:
    """The other replica reads only the part of the plan that the item is in."""
    batch = (await submit_batch(ntm, ["{}"] * 501)).batch
    w = worker(at=await start(), capacity=501)
    w.eager = True
    await w.open()
    last = next(each for each in await w.assigned(501) if each.node_id == "500")
    assert last.node_task_id == f"batch:{batch.batch_id}:500"
    assert not last.eager_steps
