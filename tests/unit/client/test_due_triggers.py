"""Receiving due triggers across lost connections."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import grpc
import pytest
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2

from tests.unit.client.clock import Clock
from tests.unit.client.refusal import Refusal
from tests.waiting import until
from tradewind.api.trigger.v1 import trigger_pb2
from tradewind.api.trigger.v1 import trigger_service_pb2 as pb
from tradewind.client.addresses import Addresses
from tradewind.client.calls import Calls
from tradewind.client.due_triggers import DueTrigger, DueTriggers
from tradewind.client.errors import Unreachable
from tradewind.client.wire import Seconds

Step = Callable[[], object]


def quiet(clock: Clock, seconds: float) -> Step:
    """Return a step in which nothing comes for `seconds` seconds; then the server goes away."""

    def step() -> object:
        clock.now += seconds
        return away()

    return step


class Stream:
    """A stream in which these steps happen, and nothing else."""

    def __init__(self, *steps: Step) -> None:
        self._steps = list(steps)
        self.broken = False

    async def write(self, message: pb.ReceiveDueRequest) -> None:
        """Accept anything."""

    async def read(self) -> object:
        return self._steps.pop(0)()

    def done(self) -> bool:
        """Tell whether the connection has broken."""
        return self.broken

    async def done_writing(self) -> None:
        """Do nothing: nothing is read afterwards."""

    def cancel(self) -> None:
        """Do nothing: the stream has ended."""


def away() -> object:
    nothing = grpc.aio.Metadata()
    raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, "Connection refused")


def leaving() -> object:
    retry = error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(nanos=300_000_000))
    refusal = Refusal(grpc.StatusCode.UNAVAILABLE, "DRAINING", "leaving", [retry])
    raise grpc.aio.AioRpcError(refusal.code, grpc.aio.Metadata(), grpc.aio.Metadata(*refusal.trailers), "leaving")


def due() -> object:
    return pb.ReceiveDueResponse(due=[trigger_pb2.DueTrigger(token="t1")])


def due_together(*tokens: str) -> pb.ReceiveDueResponse:
    return pb.ReceiveDueResponse(due=[trigger_pb2.DueTrigger(token=token) for token in tokens])


def lost(*tokens: str) -> Step:
    """Return a step in which another trigger comes, and the answers to some are reported to have had no effect."""
    return lambda: pb.ReceiveDueResponse(due=[trigger_pb2.DueTrigger(token="t2")], lost_tokens=tokens)


def receiver(*steps: Step) -> DueTriggers:
    remaining = list(steps)
    method = cast(Any, lambda: Stream(remaining.pop(0)))
    return DueTriggers(lambda: method, Calls(Addresses.find("gate:7700"), timeout=30, patience=10), "mine", 1, "r")


async def test_receiver_reconnects_after_long_silence(clock: Clock) -> None:
    triggers = receiver(quiet(clock, 3600), quiet(clock, 3600), away, due)
    assert (await anext(triggers)).token == "t1"


async def test_receiver_outlasts_a_server_that_restarts_again_and_again(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        clock.now += seconds
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", pause)
    triggers = receiver(*[leaving, quiet(clock, 4)] * 30, due)
    assert (await anext(triggers)).token == "t1"
    # It said when to come back, the others did not.
    assert set(pauses) == {0.3, 0.1}


async def test_patience_starts_anew_with_next_request(clock: Clock) -> None:
    triggers = receiver(quiet(clock, 3600), *[quiet(clock, 4)] * 3, away, due)
    with pytest.raises(Unreachable):
        await anext(triggers)
    assert (await anext(triggers)).token == "t1"


async def test_connection_that_breaks_after_the_last_wait_is_no_news() -> None:
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
    breaks, stream = asyncio.Event(), Stream()

    async def read() -> object:
        await breaks.wait()
        return away()

    async def wait_in_vain() -> None:
        triggers = receiver()
        method = cast(Any, lambda: stream)
        triggers._method = lambda: method
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(triggers)
        breaks.set()
        await until(lambda: triggers._reading is None or triggers._reading.done(), "it has learnt of the break")

    cast(Any, stream).read = read
    await wait_in_vain()
    gc.collect()
    assert complaints == []


async def test_prefetched_triggers_are_dropped_with_their_connection() -> None:
    """The server delivers it again, so handling the old delivery would be in vain."""
    breaks = Stream(lambda: due_together("t1", "t2"), away)
    streams = [breaks, Stream(lambda: due_together("t2 again"))]
    triggers = receiver()
    method = cast(Any, lambda: streams.pop(0))
    triggers._method = lambda: method
    assert (await anext(triggers)).token == "t1"
    breaks.broken = True
    assert (await anext(triggers)).token == "t2 again"


async def test_deadline_moves_once_the_connection_has_taken_the_renewal() -> None:
    """A connection that takes nothing any more renews no lease."""
    at = datetime(2027, 1, 1, tzinfo=UTC)
    second = timedelta(seconds=0.03)
    message = due_together("t1", "t2")
    for each in message.due:
        each.delivered_at.FromDatetime(at)
        each.lease_deadline.FromDatetime(at + second)
    asked, taken, stream = asyncio.Event(), asyncio.Event(), Stream(lambda: message)

    async def write(request: pb.ReceiveDueRequest) -> None:
        if request.extensions:
            asked.set()
            await taken.wait()

    cast(Any, stream).write = write
    triggers = receiver()
    method = cast(Any, lambda: stream)
    triggers._method = lambda: method
    await anext(triggers)
    held = await anext(triggers)
    assert triggers._stream is not None
    triggers._stream._prefetched.append(held)
    await asked.wait()
    assert held.lease_deadline == at + second
    taken.set()
    await until(lambda: held.lease_deadline == at + second * 4 / 3, "the lease is renewed")
    await triggers._stream.stop_renewing()


async def test_lost_token_is_remembered_as_long_as_its_trigger() -> None:
    triggers = receiver()
    method = cast(Any, lambda: Stream(due, lost("t1", "long ago")))
    triggers._method = lambda: method
    first, second = await anext(triggers), await anext(triggers)
    assert (triggers.lost(first), triggers.lost(second)) == (True, False)
    assert len(triggers._lost) == 1
    del first
    gc.collect()
    assert len(triggers._lost) == 0


@pytest.mark.parametrize(
    "answer",
    [lambda due: due.ack(), lambda due: due.nack("later"), lambda due: due.extend(60)],
    ids=["ack", "nack", "extend"],
)
async def test_answer_after_the_connection_broke_is_lost(answer: Callable[[DueTrigger], Awaitable[None]]) -> None:
    async def write(message: pb.ReceiveDueRequest) -> None:
        away()

    triggers, stream = receiver(), Stream(due)
    method = cast(Any, lambda: stream)
    triggers._method = lambda: method
    held = await anext(triggers)
    assert not triggers.lost(held)
    cast(Any, stream).write = write
    await answer(held)
    assert triggers.lost(held)


@pytest.mark.parametrize("lease", ["2h", 0, float("inf")])
async def test_lease_that_the_server_would_refuse_is_refused_here(lease: Seconds) -> None:
    """The server would end the stream, and give everything back that came over it."""
    held = await anext(receiver(due))
    with pytest.raises(ValueError, match="a lease must be above 0 s and at most 3600 s"):
        await held.extend(lease)
