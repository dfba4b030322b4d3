"""Arguments of calls that are of another kind than meant."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.client.fake_stack import FakeStack
from tradewind.api.scheduler.v1 import flow_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb
from tradewind.client import Client, FlowStatus

Call = Callable[[Client], Awaitable[Any]]


@pytest.mark.parametrize("statuses", ["running", FlowStatus.RUNNING, ["running"], (FlowStatus.RUNNING,)])
async def test_one_word_is_one_and_not_its_letters(client: Client, stack: FakeStack, statuses: Any) -> None:
    _ = [flow async for flow in client.list_flows(statuses=statuses)]

    assert stack.scheduler.last(pb.ListFlowsRequest).statuses == [flow_pb2.FLOW_STATUS_RUNNING]


@pytest.mark.parametrize("status", ["runing", "unknown"])
async def test_a_status_that_there_is_not_is_told_those_there_are(client: Client, status: str) -> None:
    with pytest.raises(ValueError, match=f'"{status}" is none of registered, running, .*deleting$'):
        _ = [flow async for flow in client.list_flows(statuses=[status])]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda client: client.start_flow("f", at="2020-01-01"), TypeError, "'2020-01-01' is a str"),
        (lambda client: client.run_flow("f", inputs="month=2001-04"), ValueError, "this is 'month=2001-04'"),
        (lambda client: client.run_flow("f", inputs=["2001-04"]), TypeError, "this is a list"),
        (lambda client: client.run_flows([("f", {})]), TypeError, "('f', {}) is a tuple"),
    ],
)
async def test_an_argument_that_cannot_be_meant_says_what_can(
    client: Client, call: Call, error: type[Exception], words: str
) -> None:
    with pytest.raises(error) as caught:
        await call(client)

    assert words in str(caught.value)
