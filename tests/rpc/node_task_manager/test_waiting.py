"""Waits and signals over the wire: who may end which wait, and how other attempts are answered."""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from tests.rpc.node_task_manager.conftest import Ntm, RawWorker, Start, plan
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import component_pb2, node_task_pb2, notification_pb2, waiting_pb2, work_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as service_pb2
from tradewind.client.refusals import error_from

CHAIN = plan(("a", "out", "b", "price"))
FORM = {
    "title": "Release it?",
    "fields": [
        {"name": "size", "type": "integer", "required": True},
        {"name": "venue", "type": "text", "choices": ["NYSE", "LSE"]},
    ],
}
WAITS = work_pb2.WaitOrder(signal="paid")
SUSPENDED = node_task_pb2.NODE_TASK_STATUS_SUSPENDED

MakeWorker = Callable[..., RawWorker]


def built_in(node_type: str, config: Any) -> component_pb2.Plan:
    """Return a plan with a node of a built-in type, and a node of type noop behind each of its outputs."""
    outputs = {"delay": ["output"], "approval": ["approved", "rejected"]}[node_type]
    made = plan(*(("ask", handle, handle, "in") for handle in outputs), digest=f"{node_type}{hash(str(config))}")
    made.nodes[0].node_type, made.nodes[0].config_json = node_type, json.dumps(config)
    return made


async def send(ntm: Ntm, node: str = "a", **fields: Any) -> waiting_pb2.SignalNodeResponse:
    request = waiting_pb2.SignalNodeRequest(node_task_id=f"flow:0:0:{node}", user_id="default", **fields)
    return await ntm.stub.SignalNode(request)


async def refused(ntm: Ntm, node: str = "a", **fields: Any) -> tuple[str, str, list[tuple[str, str]]]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await send(ntm, node, **fields)
    error: Any = error_from(caught.value, "here", "SignalNode")
    violations = [(each.path, each.message) for each in getattr(error, "violations", ())]
    return caught.value.code().name, str(error), violations


async def suspended(ntm: Ntm, w: RawWorker, node: str = "a", **wait: Any) -> work_pb2.NodeTaskAssignment:
    """Let a node of the run return a wait."""
    await w.open()
    await ntm.submit(CHAIN)
    (given,) = await w.assigned()
    order = work_pb2.WaitOrder(**wait)
    await w.acknowledged(await w.send(completions=[work_pb2.NodeTaskCompletion(token=given.token, wait=order)]))
    return given


async def test_wait_is_recorded_and_its_signal_reaches_the_next_attempt(ntm: Ntm, worker: MakeWorker) -> None:
    w = worker()
    await suspended(ntm, w, signal="paid", delay=Duration(seconds=3600))
    task = await ntm.node("a")
    assert (task.status, task.wait.signal, task.attempt) == (SUSPENDED, "paid", 1)
    assert task.wait.until.ToMilliseconds() - task.wait.since.ToMilliseconds() == 3_600_000
    assert re.fullmatch(r'waits for signal "paid", until [0-9-]{10}T[0-9:]{8}\.\d{3}Z', task.reason)
    answer = await send(ntm, signal="paid", payload_json='{"sum":7}', by="ann")
    assert (answer.kept, answer.node_task.resumed.by) == (False, "ann")
    (_, again) = await w.assigned(2)
    assert (again.attempt, again.resumed.signal, again.resumed.payload_json) == (2, "paid", '{"sum":7}')
    await w.complete(again.token, out="1")
    assert (await ntm.node("a")).status == node_task_pb2.NODE_TASK_STATUS_COMPLETED


async def test_unexpected_signal_is_refused_with_a_reason(ntm: Ntm, worker: MakeWorker) -> None:
    assert (await refused(ntm, signal="paid"))[0] == "NOT_FOUND"
    w = worker()
    await suspended(ntm, w, signal="paid")
    code, message, _ = await refused(ntm, signal="pad")
    assert (code, message) == (
        "FAILED_PRECONDITION",
        'flow:0:0:a waits for signal "paid", not "pad"; it is suspended',
    )
    assert (await refused(ntm, "b", signal="paid", only_if_waiting=True))[0] == "FAILED_PRECONDITION"
    code, _, violations = await refused(ntm, signal="no no", payload_json="{", request_id="r" * 129)
    assert (code, [path for path, _ in violations]) == ("INVALID_ARGUMENT", ["signal", "payload_json", "request_id"])
    await send(ntm, request_id="r1", by="ann")
    assert not (await send(ntm, request_id="r1")).kept
    (_, again) = await w.assigned(2)
    await w.complete(again.token, out="1")
    code, message, _ = await refused(ntm, signal="paid")
    assert code == "FAILED_PRECONDITION"
    assert message == 'flow:0:0:a is completed; the signal "paid" from ann ended its wait'
    # The same request has already had its effect.
    assert (
        await send(ntm, signal="paid", request_id="r1")
    ).node_task.status == node_task_pb2.NODE_TASK_STATUS_COMPLETED


async def test_early_signal_is_kept_until_the_node_waits(ntm: Ntm, worker: MakeWorker) -> None:
    await ntm.submit(CHAIN)
    assert (await send(ntm, "b", signal="paid", payload_json="8")).kept
    w = worker()
    await w.open()
    (a,) = await w.assigned()
    await w.complete(a.token, out="1")
    (_, b) = await w.assigned(2)
    order = work_pb2.WaitOrder(signal="paid", completes="total")
    await w.send(completions=[work_pb2.NodeTaskCompletion(token=b.token, wait=order)])

    async def done() -> bool:
        found = await ntm.node("b", include_outputs=True)
        return [(each.handle, each.value_json) for each in found.outputs] == [("total", "8")]

    await until(done, "the payload is what b emits")


@pytest.mark.parametrize(
    ("wait", "message"),
    [
        ({}, "a signal or a time is required"),
        (
            {"form_json": '{"title":"?"}', "delay": Duration(seconds=1)},
            "a form needs a signal, which brings the answer",
        ),
        ({"signal": "ok", "form_json": '{"titel":"?"}'}, "form.titel: unknown key; known keys are title, description,"),
    ],
)
async def test_invalid_wait_fails_the_attempt(ntm: Ntm, worker: MakeWorker, wait: dict[str, Any], message: str) -> None:
    await suspended(ntm, worker(), **wait)
    task = await ntm.node("a")
    assert (task.status, task.error.code) == (node_task_pb2.NODE_TASK_STATUS_FAILED, "INVALID_OUTPUT")
    assert message in task.error.message


async def test_approval_notifies_its_user_and_takes_the_branch_of_the_answer(ntm: Ntm) -> None:
    await ntm.submit(built_in("approval", {"form": FORM, "seconds": 3600}))
    task = await ntm.node("ask")
    assert (task.status, json.loads(task.wait.form_json), task.attempt) == (SUSPENDED, FORM, 0)
    assert task.reason.startswith('waits for an answer: "Release it?", until ')
    listed = await ntm.stub.ListNotifications(notification_pb2.ListNotificationsRequest(user_id="default"))
    (notification,) = listed.notifications
    assert (notification.kind, notification.message) == (
        notification_pb2.NOTIFICATION_KIND_ANSWER_WANTED,
        "Release it?",
    )
    assert (notification.title, notification.subject.node_task_id) == (
        "flow:0:0:ask waits for an answer",
        "flow:0:0:ask",
    )
    wrong = {"values": {"size": 1.5, "venue": "TSE", "price": 1}, "why": ""}
    code, _, violations = await refused(ntm, "ask", payload_json=json.dumps(wrong))
    assert (code, dict(violations)) == (
        "INVALID_ARGUMENT",
        {
            "payload_json.why": "unknown key; known keys are approved, values",
            "payload_json.values.size": "must be of type integer, is 1.5",
            "payload_json.values.venue": 'must be one of "NYSE", "LSE", is "TSE"',
            "payload_json.values.price": "is not a field of the form; it has size, venue",
        },
    )
    assert (await refused(ntm, "ask"))[2] == [("payload_json.values.size", "is required")]
    assert (await refused(ntm, "ask", payload_json=f'{{"values": {{"size": {10**400}}}}}'))[0] == "INVALID_ARGUMENT"
    answer = {"approved": True, "values": {"size": 100, "venue": "LSE"}}
    sent = [send(ntm, "ask", payload_json=json.dumps(answer), by=f"user{at}", only_if_waiting=True) for at in range(3)]
    accepted = [each for each in await asyncio.gather(*sent, return_exceptions=True) if not isinstance(each, Exception)]
    assert len(accepted) == 1
    done = await ntm.node("ask", include_outputs=True)
    (output,) = done.outputs
    assert (output.handle, json.loads(output.value_json)) == ("approved", {**answer, "by": done.resumed.by})
    assert done.resumed.by in ("user0", "user1", "user2")
    assert (await ntm.node("rejected")).status == node_task_pb2.NODE_TASK_STATUS_SKIPPED
    assert (await ntm.node("approved")).status == node_task_pb2.NODE_TASK_STATUS_PENDING


@pytest.mark.parametrize(("then", "handle"), [("reject", "rejected"), ("approve", "approved"), ("fail", "")])
async def test_unanswered_approval_follows_its_default(ntm: Ntm, then: str, handle: str) -> None:
    await ntm.submit(built_in("approval", {"form": FORM, "seconds": 0.05, "then": then}))

    async def over() -> bool:
        return bool((await ntm.node("ask")).status != SUSPENDED)

    await until(over, "its time has come")
    done = await ntm.node("ask", include_outputs=True)
    assert [each.handle for each in done.outputs] == ([handle] if handle else [])
    assert done.error.code == ("" if handle else "WAIT_TIMEOUT")


async def test_a_delay_needs_no_worker(ntm: Ntm) -> None:
    await ntm.submit(built_in("delay", {"seconds": 0.05}))

    async def over() -> bool:
        return bool((await ntm.node("ask")).status == node_task_pb2.NODE_TASK_STATUS_COMPLETED)

    await until(over, "the delay is over")
    assert (await refused(ntm, "ask", signal="go"))[0] == "FAILED_PRECONDITION"


async def test_invalid_config_of_built_in_type_is_refused(ntm: Ntm) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ntm.submit(built_in("delay", {"second": 1}))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "plans[0].nodes[0].config_json" in str(caught.value.details())


async def test_worker_without_a_stream_can_report_a_wait(ntm: Ntm) -> None:
    await ntm.submit(CHAIN)
    for at, report in enumerate(("CompleteNodeTasks", "ReportNodeTasks")):
        request = service_pb2.ClaimNodeTasksRequest(worker_id="w1", node_types=["noop"], limit=1)
        (given,) = (await ntm.stub.ClaimNodeTasks(request)).assignments
        assert given.attempt == at + 1
        completion = work_pb2.NodeTaskCompletion(token=given.token, wait=work_pb2.WaitOrder(signal="paid"))
        kind = getattr(service_pb2, f"{report}Request")
        answer = await getattr(ntm.stub, report)(kind(worker_id="w1", completions=[completion]))
        assert list(answer.losses) == []
        assert (await ntm.node("a")).status == SUSPENDED
        await send(ntm, signal="paid")
    assert (await ntm.node("a")).resumed.signal == "paid"


async def test_run_with_a_waiting_node_can_be_stopped(ntm: Ntm) -> None:
    await ntm.submit(built_in("approval", {"form": FORM}))
    request = service_pb2.StopComponentRequest(
        flow_id="flow", run_id="r0", user_id="default", reason="no more", by="ann"
    )
    await ntm.stub.StopComponent(request)
    task = await ntm.node("ask")
    assert (task.status, task.reason) == (node_task_pb2.NODE_TASK_STATUS_TERMINATED, "no more")
    assert (await refused(ntm, "ask"))[:2] == ("FAILED_PRECONDITION", "flow:0:0:ask is terminated")


async def test_wait_outlives_the_replica_where_it_began(start: Start, worker: MakeWorker, ntm: Ntm) -> None:
    """Another replica's worker gets the node task, whether a time ends the wait or a signal sent to a third replica."""
    first, other = await start(), await start()
    gone = worker("w1", at=first)
    await gone.open()
    await first.submit(plan(nodes="a b"))
    tokens = {each.node_id: each.token for each in await gone.assigned(2)}
    for name, wait in (("a", work_pb2.WaitOrder(delay=Duration(nanos=200_000_000))), ("b", WAITS)):
        completions = [work_pb2.NodeTaskCompletion(token=tokens[name], wait=wait)]
        await gone.acknowledged(await gone.send(completions=completions))
    await gone.close()
    await first.server.stop()
    w = worker("w2", at=other)
    await w.open()
    await send(ntm, "b", signal="paid")
    again = await w.assigned(2)
    assert {each.node_id: each.resumed.signal for each in again} == {"a": "", "b": "paid"}


async def test_signal_to_a_mapped_node_names_its_items(ntm: Ntm) -> None:
    mapped = plan(("a", "out", "m", "in"))
    mapped.nodes[1].fan_out.CopyFrom(component_pb2.FanOut(handle="in"))
    await ntm.submit(mapped)
    status, message, _ = await refused(ntm, "m", signal="paid")
    assert status == "FAILED_PRECONDITION"
    assert "runs once for each item of a list: signal an item, such as flow:0:0:m:0" in message
