"""Many runs over one stream: each is answered separately, in any order, until the stream ends."""

import asyncio
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2

from tests.rpc.scheduler.conftest import Client, Peers
from tests.rpc.scheduler.errors import refused
from tests.waiting import until
from tradewind.api.scheduler.v1 import cycle_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2


def run(number: int, flow_id: str = "f", wait: int = 10, **fields: Any) -> pb2.StreamedRun:
    streamed = pb2.StreamedRun(number=number, request=pb2.RunFlowRequest(flow_id=flow_id, **fields))
    if wait:
        streamed.request.wait.FromSeconds(wait)
    return streamed


class Stream:
    """A StreamRuns call, and its answers by number."""

    def __init__(self, scheduler: Client) -> None:
        self._call = scheduler.stub.StreamRuns()
        self.answers: dict[int, pb2.StreamedRunAnswer] = {}

    async def send(self, *runs: pb2.StreamedRun) -> None:
        await self._call.write(pb2.StreamRunsRequest(runs=runs))

    async def answered(self, *numbers: int) -> None:
        while not self.answers.keys() >= set(numbers):
            assert await self.read_next(), "the stream ended"

    async def read_next(self) -> bool:
        """Read the next message; return false at the end."""
        response = await self._call.read()
        if not isinstance(response, pb2.StreamRunsResponse):
            return False
        for answer in response.answers:
            assert answer.number not in self.answers
            self.answers[answer.number] = answer
        return True

    async def end(self) -> bool:
        """Send no more and read the rest; return whether the stream ended well."""
        await self._call.done_writing()
        while await self.read_next():
            pass
        return await self._call.code() is grpc.StatusCode.OK

    def cancel(self) -> None:
        self._call.cancel()


def status(answer: pb2.StreamedRunAnswer) -> tuple[int, str, list[str]]:
    """Return the code, the reason and the faulty fields."""
    decoded = status_pb2.Status.FromString(answer.error_status)
    reason, fields = "", []
    for packed in decoded.details:
        info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        if packed.Unpack(info):
            reason = info.reason
        elif packed.Unpack(bad):
            fields = [violation.field for violation in bad.field_violations]
    return decoded.code, reason, fields


async def test_cycle_that_ends_first_is_answered_first(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register("slow")
    await scheduler.register("fast")
    stream = Stream(scheduler)
    await stream.send(run(7, "slow"), run(8, "fast"))
    await until(lambda: len(peers.node_tasks.runs) == 2, "both are submitted")
    await peers.node_tasks.finish(("fast", 0, 0), "0")
    await stream.answered(8)
    assert set(stream.answers) == {8}
    await peers.node_tasks.finish(("slow", 0, 0), "0")
    assert await stream.end()
    cycles = {number: answer.response.cycle for number, answer in stream.answers.items()}
    assert {number: cycle.flow_id for number, cycle in cycles.items()} == {7: "slow", 8: "fast"}
    assert {cycle.status for cycle in cycles.values()} == {cycle_pb2.CYCLE_STATUS_COMPLETED}


async def test_stream_ends_after_its_last_answer(scheduler: Client) -> None:
    await scheduler.register("f")
    stream = Stream(scheduler)
    await stream.send(*(run(number) for number in range(300)))
    assert await stream.end()
    assert {answer.response.cycle.cycle for answer in stream.answers.values()} == set(range(300))


async def test_invalid_trace_context_is_ignored(scheduler: Client) -> None:
    await scheduler.register("f")
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    contexts = ["rubbish", f"00-{'0' * 32}-b7ad6b7169203331-01", "00-" * 1000, f"00-{trace_id}-b7ad6b7169203331-01"]
    stream = Stream(scheduler)
    for number, context in enumerate(contexts):
        one = run(number)
        one.traceparent = context
        await stream.send(one)
    assert await stream.end()
    assert [status(stream.answers[number])[0] for number in range(4)] == [0] * 4
    cycles = [stream.answers[number].response.cycle for number in range(4)]
    assert [cycle.trace_id for cycle in cycles] == ["", "", "", trace_id]
    listed = await scheduler.stub.ListCycles(pb2.ListCyclesRequest(flow_id="f"))
    assert len(listed.cycles) == 4


async def test_refused_run_does_not_affect_others(scheduler: Client) -> None:
    await scheduler.register("f")
    stream = Stream(scheduler)
    await stream.send(run(1, "unknown"), run(2, inputs_json="[]"), run(3), run(4, wait=4000))
    await stream.answered(1, 2, 3, 4)
    assert status(stream.answers[1]) == (grpc.StatusCode.NOT_FOUND.value[0], "FLOW_NOT_FOUND", [])
    invalid = grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert status(stream.answers[2]) == (invalid, "INVALID_INPUT", ["inputs_json"])
    assert stream.answers[3].response.cycle.status == cycle_pb2.CYCLE_STATUS_COMPLETED
    assert status(stream.answers[4]) == (invalid, "INVALID_INPUT", ["wait"])
    await stream.send(run(5))
    await stream.answered(5)
    assert await stream.end()


async def test_request_repeated_on_another_stream_gets_the_first_run(scheduler: Client) -> None:
    await scheduler.register("f")
    first, second = Stream(scheduler), Stream(scheduler)
    await first.send(run(1, request_id="once"))
    await first.answered(1)
    first.cancel()
    await second.send(run(1, request_id="once"))
    await second.answered(1)
    assert second.answers[1].response.cycle.run_id == first.answers[1].response.cycle.run_id
    assert await second.end()


async def test_a_cycle_belongs_to_the_trace_of_its_run(scheduler: Client, peers: Peers) -> None:
    await scheduler.register("f")
    stream = Stream(scheduler)
    traced = run(1)
    traced.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await stream.send(traced)
    assert await stream.end()
    assert peers.node_tasks.runs["f", 0, 0].submission.traceparent.split("-")[1] == "0af7651916cd43dd8448eb211c80319c"


async def test_cycles_continue_after_their_client_disconnects(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register("f")
    stream = Stream(scheduler)
    await stream.send(run(1))
    await until(lambda: peers.node_tasks.runs, "the cycle is submitted")
    stream.cancel()
    await peers.node_tasks.finish(("f", 0, 0), "0")
    assert (await scheduler.ended()).status == cycle_pb2.CYCLE_STATUS_COMPLETED


async def test_stopping_server_refuses_open_streams_with_draining(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register("f")
    stream = Stream(scheduler)
    await stream.send(run(1))
    await until(lambda: peers.node_tasks.runs, "the cycle is submitted")
    leaving = asyncio.create_task(scheduler.server.stop())
    await refused(stream.read_next(), grpc.StatusCode.UNAVAILABLE, "DRAINING")
    await leaving
