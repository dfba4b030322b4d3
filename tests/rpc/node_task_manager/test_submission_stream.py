"""Submissions over a stream: answered in order, each separately."""

from typing import Any

import grpc
from google.rpc import status_pb2

from tests.rpc.node_task_manager.conftest import Ntm, plan
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import component_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2

CHAIN = plan(("a", "out", "b", "price"))


def submission(number: int, *flows: str, **fields: Any) -> pb2.StreamSubmissionsRequest:
    """Build a request for a run of each of these flows."""
    message = pb2.StreamSubmissionsRequest(number=number)
    for flow in flows:
        run = message.request.runs.add(flow_id=flow, run_id="r0", user_id="default", **fields)
        run.components.add(component_id="0", plan_digest=CHAIN.digest)
    return message


async def answers(call: Any, count: int) -> list[pb2.StreamSubmissionsResponse]:
    """Read `count` answers."""
    return [await call.read() for _ in range(count)]


def outcomes(answer: pb2.StreamSubmissionsResponse) -> list[int]:
    return [each.outcome for each in answer.response.results]


async def test_requests_are_answered_in_order_until_caller_is_done(ntm: Ntm) -> None:
    call: Any = ntm.stub.StreamSubmissions()
    first = submission(7, "f")
    first.request.plans.append(CHAIN)
    for message in (submission(5, "g"), first, submission(9, "f", "g", "f")):
        await call.write(message)
    await call.done_writing()
    unknown, accepted, mixed = await answers(call, 3)
    assert [each.number for each in (unknown, accepted, mixed)] == [5, 7, 9]
    assert [list(each.unknown_plans) for each in unknown.response.results] == [[CHAIN.digest]]
    assert outcomes(accepted) == [component_pb2.SUBMIT_OUTCOME_ACCEPTED]
    assert outcomes(mixed) == [
        component_pb2.SUBMIT_OUTCOME_DUPLICATE,
        component_pb2.SUBMIT_OUTCOME_ACCEPTED,
        component_pb2.SUBMIT_OUTCOME_DUPLICATE,
    ]
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def test_failed_request_is_answered_with_its_error_and_affects_no_other(ntm: Ntm) -> None:
    await ntm.submit(CHAIN)
    call: Any = ntm.stub.StreamSubmissions()
    for message in (submission(1, "f", inputs_json="[1]"), submission(2, "f")):
        await call.write(message)
    refused, accepted = await answers(call, 2)
    status = status_pb2.Status.FromString(refused.error_status)
    assert (refused.number, refused.HasField("response")) == (1, False)
    assert status.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert "runs[0].inputs_json" in status.message
    assert (accepted.number, outcomes(accepted)) == (2, [component_pb2.SUBMIT_OUTCOME_ACCEPTED])
    call.cancel()


async def test_stopping_server_ends_the_stream_with_a_reason(ntm: Ntm) -> None:
    call: Any = ntm.stub.StreamSubmissions()
    await call.write(submission(1, "f"))
    await answers(call, 1)
    await ntm.server.stop()
    await until(call.done, "the stream has ended")
    assert await call.code() is grpc.StatusCode.UNAVAILABLE
    assert "shutting down" in await call.details()
