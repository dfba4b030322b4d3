"""How long a call may take, and how long it is repeated while its server is away."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from google.protobuf.message import Message

from tests.unit.client.fake_stack import FakeStack
from tests.unit.client.refusal import AWAY
from tests.waiting import until
from tradewind.api.scheduler.v1 import job_pb2
from tradewind.api.trigger.v1.doctor_pb2 import RunDoctorResponse
from tradewind.client import Client, Unavailable, Unreachable
from tradewind.client import calls as calls_module
from tradewind.client.addresses import Addresses
from tradewind.client.calls import Calls


async def test_patience_starts_when_server_goes_away_not_with_call() -> None:
    """A call that waits may already have waited for longer than the patience."""
    calls = Calls(Addresses.find("gate:7700"), timeout=30, patience=0.5)
    asked = 0

    async def once() -> str:
        nonlocal asked
        asked += 1
        if asked == 1:
            await asyncio.sleep(0.6)
            raise Unavailable("away")
        return "done"

    assert await calls.repeated(once) == "done"


async def test_patience_lasts_from_the_first_failure_and_a_call_may_have_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_module, "_BACKOFF_S", (0.01, 0.02))
    asked = 0

    async def once() -> str:
        nonlocal asked
        asked += 1
        raise Unavailable("away")

    impatient, patient = (Calls(Addresses.find("gate:7700"), timeout=30, patience=patience) for patience in (0.0, 0.2))
    async with asyncio.timeout(10):
        for calls, least, first in ((impatient, 0.0, True), (patient, 0.0, False), (impatient, 0.2, False)):
            asked = 0
            with pytest.raises(Unavailable):
                await calls.repeated(once, patience=least)
            assert (asked == 1) is first


async def test_doctor_of_a_service_that_goes_away_is_asked_again_from_the_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: Counter[str] = Counter()

    async def stream(_: Calls, method: object, request: Message) -> AsyncIterator[RunDoctorResponse]:
        service = type(request).__module__
        asked[service] += 1
        yield RunDoctorResponse(examined=7)
        if asked[service] == 1:
            raise Unreachable("gate:7700", "it restarts")

    monkeypatch.setattr(calls_module, "_BACKOFF_S", (0.01, 0.02))
    monkeypatch.setattr(Calls, "stream", stream)
    async with Client("gate:7700") as client:
        diagnosis = await client.run_doctor()
    assert set(asked.values()) == {2}
    assert diagnosis.examined == 7 * len(asked)


@pytest.mark.parametrize("streamed", [True, False])
async def test_wait_for_an_end_may_take_longer_than_the_timeout_of_a_call(stack: FakeStack, streamed: bool) -> None:
    stack.scheduler.ending = None
    async with Client(stack.address, timeout=0.2, patience=0, run_stream=streamed) as client:
        waiting = asyncio.ensure_future(client.run_flow("momentum", wait=30))
        await until(lambda: stack.scheduler.cycles["momentum"], "its cycle has begun")
        assert not (await asyncio.wait([waiting], timeout=0.5))[0]

        await stack.scheduler.end("momentum", 0)
        run = await waiting
    assert run.record is not None
    assert run.record.ended


async def refuse_once(stack: FakeStack) -> None:
    """Wait until the scheduler was asked something, and refuse what it is asked next."""
    known = len(stack.scheduler.requests)
    await until(lambda: len(stack.scheduler.requests) > known, "it was asked")
    stack.scheduler.refusals.append(AWAY)
    await until(lambda: not stack.scheduler.refusals, "it was asked again")


async def test_wait_for_bulk_job_outlasts_an_absence_without_patience(stack: FakeStack) -> None:
    stack.scheduler.job.status = job_pb2.BULK_JOB_STATUS_RUNNING
    async with Client(stack.address, patience=0) as client:
        waiting = asyncio.ensure_future(client.wait_bulk_job("job-1"))
        await refuse_once(stack)
        stack.scheduler.job.status = job_pb2.BULK_JOB_STATUS_COMPLETED
        assert (await waiting).ended


@pytest.mark.parametrize("cycle", [0, None])
async def test_following_logs_outlasts_an_absence_without_patience(stack: FakeStack, cycle: int | None) -> None:
    stack.scheduler.ending = None
    async with Client(stack.address, patience=0) as client:
        await client.run_flow("momentum")
        lines = client.watch_logs("momentum", cycle, interval=0.01)
        following = asyncio.ensure_future(anext(lines))
        for _ in range(3):
            await refuse_once(stack)
        stack.scheduler.log("momentum", "it goes on")
        assert (await following).message == "it goes on"
        await lines.aclose()


async def test_run_that_is_cancelled_before_it_was_sent_never_begins(client: Client, stack: FakeStack) -> None:
    first = asyncio.ensure_future(client.run_flow("momentum", {"n": 1}))
    await asyncio.sleep(0)
    first.cancel()

    await client.run_flow("momentum", {"n": 2})
    assert [cycle.inputs_json for cycle in stack.scheduler.cycles["momentum"]] == ['{"n":2}']
