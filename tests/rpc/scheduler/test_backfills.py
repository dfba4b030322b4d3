"""Backfills over gRPC: the cycles of a past range run, a few at a time, whichever process dies meanwhile."""

from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict

from tests.rpc.scheduler.conftest import Client, Peers, Start
from tests.rpc.scheduler.errors import refused
from tests.waiting import until
from tradewind.api.scheduler.v1 import backfill_pb2 as pb2
from tradewind.api.scheduler.v1 import cycle_pb2, explanation_pb2, flow_pb2, scheduler_service_pb2

HOUR = 3_600_000
T = 1_600_000_200_000
"""A time long past, not on a full hour."""


def backfill_request(hours: int, **fields: object) -> pb2.BackfillFlowRequest:
    """Return a request for the last `hours` hours before T."""
    request = pb2.BackfillFlowRequest(flow_id="f", **fields)  # type: ignore[arg-type]
    request.start.FromMilliseconds(T - hours * HOUR)
    request.end.FromMilliseconds(T)
    return request


async def backfill(scheduler: Client, hours: int, **fields: object) -> pb2.Backfill:
    return (await scheduler.stub.BackfillFlow(backfill_request(hours, **fields))).backfill


async def found(scheduler: Client, backfill_id: int = 1) -> pb2.Backfill:
    return (await scheduler.stub.GetBackfill(pb2.GetBackfillRequest(flow_id="f", backfill_id=backfill_id))).backfill


async def ended(scheduler: Client, backfill_id: int = 1) -> pb2.Backfill:
    async def over() -> bool:
        return (await found(scheduler, backfill_id)).status != pb2.BACKFILL_STATUS_RUNNING

    await until(over, f"backfill {backfill_id} has ended")
    return await found(scheduler, backfill_id)


async def submitted(peers: Peers, cycle: int) -> None:
    await until(lambda: ("f", cycle, 0) in peers.node_tasks.runs, f"cycle {cycle} is submitted")


async def firings(scheduler: Client, backfill_id: int) -> list[int]:
    """Return when cycles began for a backfill, the earliest first."""
    request = scheduler_service_pb2.ListFiringsRequest(flow_id="f", page_size=1000, backfill_id=backfill_id)
    lines = (await scheduler.stub.ListFirings(request)).firings
    return [line.planned_time.ToMilliseconds() for line in reversed(lines)]


async def test_backfill_runs_a_cycle_for_each_time_of_its_range(scheduler: Client) -> None:
    await scheduler.register(interval="1h")
    made = await backfill(scheduler, 25, max_running=4, by="ada", request_id="r")
    assert (made.times, made.by, made.start.ToMilliseconds(), made.end.ToMilliseconds()) == (
        25,
        "ada",
        T - 25 * HOUR,
        T,
    )
    done = await ended(scheduler)
    assert (done.begun, done.completed, done.running, done.failed) == (25, 25, 0, 0)
    assert done.status == pb2.BACKFILL_STATUS_COMPLETED
    assert await firings(scheduler, 1) == [T + (at - 25) * HOUR for at in range(25)]
    for unknown in (7, -1):
        await refused(firings(scheduler, unknown), grpc.StatusCode.NOT_FOUND, "BACKFILL_NOT_FOUND")
    cycle = await scheduler.cycle(cycle=24)
    assert (cycle.origin, cycle.backfill_id) == (cycle_pb2.CYCLE_ORIGIN_BACKFILL, 1)
    assert cycle.planned_time.ToMilliseconds() == T - HOUR
    assert (await backfill(scheduler, 25, max_running=4, request_id="r")).backfill_id == 1
    another = scheduler.stub.BackfillFlow(backfill_request(24, request_id="r"))
    await refused(another, grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    again = await backfill(scheduler, 25)
    assert (await ended(scheduler, again.backfill_id)).skipped == 25
    listed = await scheduler.stub.ListBackfills(pb2.ListBackfillsRequest(flow_id="f", page_size=1))
    assert [each.backfill_id for each in listed.backfills] == [2]
    request = pb2.ListBackfillsRequest(flow_id="f", page_size=1, page_token=listed.next_page_token)
    assert [each.backfill_id for each in (await scheduler.stub.ListBackfills(request)).backfills] == [1]


async def test_backfill_runs_at_most_max_running_cycles_at_once(scheduler: Client, peers: Peers) -> None:
    await scheduler.register(interval="1h")
    peers.node_tasks.automatic = False
    await backfill(scheduler, 5, max_running=2)
    for done in range(5):
        await submitted(peers, done)
        state = await found(scheduler)
        assert state.running <= 2
        await peers.node_tasks.finish(("f", done, 0))
    assert (await ended(scheduler)).completed == 5


async def test_cancelled_backfill_begins_no_more_cycles(scheduler: Client, peers: Peers) -> None:
    await scheduler.register(interval="1h")
    peers.node_tasks.automatic = False
    await backfill(scheduler, 5)
    await submitted(peers, 0)
    request = pb2.CancelBackfillRequest(flow_id="f", backfill_id=1, by="ada", reason="wrong month")
    cancelled = (await scheduler.stub.CancelBackfill(request)).backfill
    assert (cancelled.status, cancelled.reason) == (pb2.BACKFILL_STATUS_CANCELLED, 'cancelled by "ada": wrong month')
    await peers.node_tasks.finish(("f", 0, 0))
    await scheduler.ended()
    again = (await scheduler.stub.CancelBackfill(request)).backfill
    assert (again.status, again.begun, again.completed) == (pb2.BACKFILL_STATUS_CANCELLED, 1, 1)
    assert await firings(scheduler, 1) == [T - 5 * HOUR, T - 4 * HOUR]


async def test_backfill_continues_on_another_replica(start: Start, peers: Peers) -> None:
    first = await start(scheduler_lease_seconds=0.5)
    await until(lambda: peers.triggers.listens("f"), "the scheduler listens")
    await first.register(interval="1h")
    peers.node_tasks.automatic = False
    await backfill(first, 3)
    await submitted(peers, 0)
    await first.server.stop()
    second = await start(scheduler_lease_seconds=0.5)
    for done in range(3):
        await submitted(peers, done)
        await peers.node_tasks.finish(("f", done, 0))
    assert (await ended(second)).completed == 3
    assert await firings(second, 1) == [T - 3 * HOUR, T - 2 * HOUR, T - HOUR]


async def test_invalid_backfill_requests_are_refused(scheduler: Client) -> None:
    await scheduler.register(interval="1m")
    too_many = await refused(
        scheduler.stub.BackfillFlow(backfill_request(200)), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT"
    )
    assert too_many.violations[0][1].startswith("12000 times are planned")
    request = backfill_request(1, max_running=51, request_id="a b")
    wrong = await refused(scheduler.stub.BackfillFlow(request), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert sorted(path for path, _ in wrong.violations) == ["max_running", "request_id"]
    backwards = pb2.BackfillFlowRequest(flow_id="none", max_running=51, start=request.end, end=request.start)
    wrong = await refused(scheduler.stub.BackfillFlow(backwards), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert sorted(path for path, _ in wrong.violations) == ["end", "max_running"]
    assert dict(wrong.violations)["end"].startswith("must be after start, ")
    future = backfill_request(1)
    future.end.FromMilliseconds(4_000_000_000_000)
    await refused(scheduler.stub.BackfillFlow(future), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    empty = pb2.BackfillFlowRequest(flow_id="f")
    await refused(scheduler.stub.BackfillFlow(empty), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    nobody = backfill_request(1)
    nobody.flow_id = "none"
    await refused(scheduler.stub.BackfillFlow(nobody), grpc.StatusCode.NOT_FOUND, "FLOW_NOT_FOUND")
    unknown = pb2.GetBackfillRequest(flow_id="f", backfill_id=7)
    await refused(scheduler.stub.GetBackfill(unknown), grpc.StatusCode.NOT_FOUND, "BACKFILL_NOT_FOUND")
    await scheduler.register("once", interval="0")
    once = backfill_request(1)
    once.flow_id = "once"
    await refused(scheduler.stub.BackfillFlow(once), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")


async def test_explanation_shows_the_progress_of_a_backfill(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register(interval="1h")
    await backfill(scheduler, 24, max_running=2)
    await submitted(peers, 1)

    async def reasons() -> dict[str, Any]:
        response = await scheduler.stub.ExplainFlow(explanation_pb2.ExplainFlowRequest(flow_id="f"))
        return {each.code: (each.sentence, MessageToDict(each.facts)) for each in response.reasons}

    sentence, facts = (await reasons())["backfilling"]
    assert sentence == "backfill 1 has 22 of 24 cycles to go, 2 at a time; 2 running now"
    assert (facts["left"], facts["running"], facts["waits"]) == (22, 2, False)
    await scheduler.start()
    await scheduler.stub.PauseFlow(scheduler_service_pb2.PauseFlowRequest(flow_id="f"))
    assert (await reasons())["backfilling"][0].endswith("; it waits until the flow is resumed")
    await scheduler.stub.CancelBackfill(pb2.CancelBackfillRequest(flow_id="f", backfill_id=1))
    assert "backfilling" not in await reasons()


async def test_backfill_of_a_stopped_flow_uses_the_grid_on_which_it_ran(scheduler: Client) -> None:
    await scheduler.register(interval="1h")
    started = (await scheduler.start()).next_execution.ToMilliseconds()
    await scheduler.stop()
    assert (await backfill(scheduler, 3)).times == 3
    assert (await ended(scheduler)).completed == 3
    assert {time % HOUR for time in await firings(scheduler, 1)} == {started % HOUR}


async def test_refusal_of_a_too_long_range_says_where_to_split_it(scheduler: Client) -> None:
    await scheduler.register(interval="1h")
    call = scheduler.stub.BackfillFlow(backfill_request(25_000))
    ((path, message),) = (await refused(call, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")).violations
    assert (path, message.partition(" times")[0]) == ("end", "25000")
    assert message.endswith(
        "split it into 3, the first with end 2018-12-28T12:30:00.000Z, each starting where the previous one ends"
    )
    first = backfill_request(25_000)
    first.end.FromJsonString("2018-12-28T12:30:00.000Z")
    assert (await scheduler.stub.BackfillFlow(first)).backfill.times == 10_000


async def test_refusal_of_a_too_long_cron_range_advises_splitting_it(scheduler: Client) -> None:
    spec = flow_pb2.FlowSpec(schedule=flow_pb2.ScheduleSpec(cron="* * * * *"))
    spec.nodes.add(id="a", type="noop")
    await scheduler.stub.RegisterFlow(scheduler_service_pb2.RegisterFlowRequest(flow_id="f", spec=spec))
    call = scheduler.stub.BackfillFlow(backfill_request(200))
    ((path, message),) = (await refused(call, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")).violations
    assert path == "end"
    assert message.endswith("split it into several, each starting where the previous one ends")
