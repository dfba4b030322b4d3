"""Clients that do not read what they asked for cost the scheduler a bounded amount, and others nothing."""

import asyncio
from collections import Counter
from typing import Any

import grpc
from msgspec import structs

from tests.contexts import WithoutHeaders
from tests.unit.scheduler.test_update_state import FACTS
from tests.waiting import until
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.rpc import run_stream
from tradewind.scheduler.rpc.run_stream import RunStream
from tradewind.scheduler.use_cases import watch_backlog
from tradewind.scheduler.use_cases.watch_backlog import MAX_BYTES, MAX_STATES, Backlog, weight_of
from tradewind.server.errors import ErrorAnswers, ErrorTable
from tradewind.server.paging import MESSAGE_BYTES


def state(cycle: int, version: int = 1, inputs: int = 0) -> ChainState:
    return ChainState(RunName("f", cycle), structs.replace(FACTS, inputs_json="x" * inputs), version)


def popped(backlog: Backlog) -> list[list[ChainState]]:
    messages = []
    while message := backlog.pop():
        messages.append(message)
    return messages


def test_backlog_within_its_limits_keeps_all_states_in_order() -> None:
    backlog = Backlog()
    states = [state(at // 2, at) for at in range(100)]
    for each in states:
        backlog.add(each)
    assert popped(backlog) == [states]
    assert len(backlog) == 0


def test_full_backlog_keeps_the_newest_state_of_each_run() -> None:
    backlog = Backlog()
    for version in range(MAX_STATES + 1):
        backlog.add(state(version % 3, version))
    received = [each for message in popped(backlog) for each in message]
    assert sorted((each.name.cycle, each.version) for each in received) == [(0, 4998), (1, 4999), (2, 5000)]


def test_full_backlog_keeps_the_latest_of_large_runs() -> None:
    backlog = Backlog()
    most = 0
    for cycle in range(100):
        backlog.add(state(cycle, inputs=1_000_000))
        most = max(most, len(backlog))
    assert most == MAX_BYTES // weight_of(state(0, inputs=1_000_000)) == len(backlog)
    assert [[each.name.cycle for each in message] for message in popped(backlog)] == [
        [at] for at in range(100 - most, 100)
    ]


def test_new_state_moves_its_run_to_the_end_of_a_full_backlog() -> None:
    backlog = Backlog()
    for cycle in range(MAX_STATES):
        backlog.add(state(cycle))
    backlog.add(state(0, version=2))
    backlog.add(state(MAX_STATES))
    received = [each for message in popped(backlog) for each in message]
    assert [(each.name.cycle, each.version) for each in received[-2:]] == [(0, 2), (MAX_STATES, 1)]
    assert [each.name.cycle for each in received[:-2]] == list(range(2, MAX_STATES))


def test_adding_to_a_full_backlog_does_not_scan_it(monkeypatch: Any) -> None:
    weighed_states: list[ChainState] = []

    def weighed(each: ChainState) -> int:
        weighed_states.append(each)
        return weight_of(each)

    monkeypatch.setattr(watch_backlog, "weight_of", weighed)
    backlog = Backlog()
    for cycle in range(MAX_STATES + 1):
        backlog.add(state(cycle))
    weighed_states.clear()
    for cycle in range(MAX_STATES + 1, MAX_STATES + 101):
        backlog.add(state(cycle))
        backlog.add(state(cycle, version=2))
    assert len(weighed_states) <= 3 * 200
    assert len(backlog) == MAX_STATES


def test_backlog_is_sent_in_messages_of_limited_size() -> None:
    backlog = Backlog()
    for cycle in range(200):
        backlog.add(state(cycle, inputs=20_000))
    messages = popped(backlog)
    assert [each.name.cycle for message in messages for each in message] == list(range(200))
    assert max(sum(map(weight_of, message)) for message in messages) <= MESSAGE_BYTES


class SilentCall(WithoutHeaders):
    """The context of a stream whose client sends as much as is accepted, and reads nothing."""

    def __init__(self) -> None:
        self.popped = 0

    async def read(self) -> Any:
        if self.popped == 1000:
            return grpc.aio.EOF
        self.popped += 1
        # Runs that have begun get a turn before more come.
        for _ in range(5):
            await asyncio.sleep(0)
        return pb2.StreamRunsRequest(runs=[pb2.StreamedRun(number=self.popped * 10 + at) for at in range(10)])

    async def write(self, _message: Any) -> None:
        await asyncio.Event().wait()


class CallOfOneMessage(WithoutHeaders):
    """The context of a stream whose client sends runs in one message, and counts the answers."""

    def __init__(self, runs: int) -> None:
        self.answered = 0
        self._messages = [pb2.StreamRunsRequest(runs=[pb2.StreamedRun()] * runs)]

    async def read(self) -> Any:
        return self._messages.pop() if self._messages else grpc.aio.EOF

    async def write(self, message: pb2.StreamRunsResponse) -> None:
        self.answered += len(message.answers)


async def test_stream_begins_limited_runs_for_a_client_that_reads_nothing(monkeypatch: Any) -> None:
    monkeypatch.setattr(run_stream, "MAX_OPEN", 50)
    begun: list[pb2.RunFlowRequest] = []

    async def run(request: pb2.RunFlowRequest, _traceparent: str) -> pb2.RunFlowResponse:
        begun.append(request)
        return pb2.RunFlowResponse()

    call: Any = SilentCall()
    stream = RunStream(run, ErrorAnswers(ErrorTable()))
    serving = asyncio.create_task(stream.serve(call))
    await until(lambda: len(begun) >= 50, "as many were begun as may be")
    for _ in range(100):
        await asyncio.sleep(0)
    # Some answers are already on their way, in the one message that nobody reads.
    assert call.popped < 20
    assert 10 * (call.popped - 1) <= len(begun) <= 10 * call.popped
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def test_stream_begins_limited_runs_of_one_message(monkeypatch: Any) -> None:
    """A message of 4 MiB has room for two million runs."""
    monkeypatch.setattr(run_stream, "MAX_OPEN", 50)
    open_runs = most = 0

    async def run(request: pb2.RunFlowRequest, _traceparent: str) -> pb2.RunFlowResponse:
        nonlocal open_runs, most
        open_runs += 1
        most = max(most, open_runs)
        await asyncio.sleep(0)
        open_runs -= 1
        return pb2.RunFlowResponse()

    call: Any = CallOfOneMessage(1000)
    await asyncio.wait_for(RunStream(run, ErrorAnswers(ErrorTable())).serve(call), 30)
    assert (call.answered, most) == (1000, 50)


async def test_other_work_has_turns_while_the_runs_of_one_message_begin() -> None:
    begun_in_turn: Counter[int] = Counter()
    turn = 0

    async def run(request: pb2.RunFlowRequest, _traceparent: str) -> pb2.RunFlowResponse:
        begun_in_turn[turn] += 1
        return pb2.RunFlowResponse()

    async def take_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    call: Any = CallOfOneMessage(5000)
    await asyncio.wait_for(RunStream(run, ErrorAnswers(ErrorTable())).serve(call), 30)
    other.cancel()
    assert begun_in_turn.total() == 5000
    assert max(begun_in_turn.values()) <= 200


async def test_stream_limits_bytes_of_unread_answers(monkeypatch: Any) -> None:
    monkeypatch.setattr(run_stream, "_MAX_WAITING_BYTES", 100_000)

    async def run(request: pb2.RunFlowRequest, _traceparent: str) -> pb2.RunFlowResponse:
        response = pb2.RunFlowResponse()
        response.cycle.inputs_json = "x" * 10_000
        return response

    call: Any = SilentCall()
    stream = RunStream(run, ErrorAnswers(ErrorTable()))
    serving = asyncio.create_task(stream.serve(call))
    await until(lambda: stream._waiting_bytes > 100_000, "it takes no more")
    for _ in range(100):
        await asyncio.sleep(0)
    assert call.popped < 100
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
