"""Planned times that wait for an open cycle: when they are tried, in which order they begin, how many may wait."""

from tests.servers import RedisServer
from tests.stores.scheduler.bench import MINUTE, Bench, redis_stores
from tests.stores.scheduler.ticks import blocked, running, tick
from tradewind.scheduler.domain.beginning import BeginOutcome
from tradewind.scheduler.domain.chain_state import FollowUp
from tradewind.scheduler.domain.flow_definition import OverlapPolicy
from tradewind.scheduler.stores.keys import Keys
from tradewind.server.clock import ManualClock
from tradewind.server.partitions import partition_of


async def test_queue_one_begins_waiting_time_when_running_cycle_ends(bench: Bench) -> None:
    due = await running(bench, overlap=OverlapPolicy.QUEUE_ONE)
    first = await tick(bench, due)
    assert first is not None
    bench.clock.advance(2 * MINUTE)
    assert await tick(bench, due + MINUTE) is None
    assert (await bench.begin(bench.queued_request())).outcome is BeginOutcome.OVERLAP
    assert await tick(bench, due + 2 * MINUTE) is None
    assert await bench.stores.firings.waiting([partition_of("f")], 9) == [], "a cycle is in its way"
    assert (await bench.end(first)).follow_up == FollowUp.ADVANCE_QUEUE
    assert await bench.stores.firings.waiting([partition_of("f")], 9) == ["f"]
    second = await bench.begun(bench.queued_request())
    assert second.facts.planned_ms == due + 2 * MINUTE
    assert await bench.stores.firings.waiting([partition_of("f")], 9) == []
    assert (await bench.begin(bench.queued_request())).outcome is BeginOutcome.OVERLAP
    assert not (await bench.end(second)).follow_up
    assert (await bench.begin(bench.queued_request())).outcome is BeginOutcome.SETTLED


async def test_flow_that_could_not_begin_what_waits_is_tried_again_after_5_minutes(bench: Bench) -> None:
    await blocked(bench)
    bench.clock.advance(5 * MINUTE - 1)
    assert await bench.stores.firings.waiting([partition_of("f")], 9) == []
    bench.clock.advance(1)
    assert await bench.stores.firings.waiting([partition_of("f")], 9) == ["f"]


async def test_flow_that_could_not_begin_what_waits_is_tried_again_once_it_is_changed(bench: Bench) -> None:
    await blocked(bench)
    await bench.register(digest="d2", overlap=OverlapPolicy.ALLOW)
    assert await bench.stores.firings.waiting([partition_of("f")], 9) == ["f"]


async def test_flow_that_could_not_begin_what_waits_is_tried_again_once_the_lost_run_in_its_way_is_forgotten(
    redis_server: RedisServer,
) -> None:
    clock = ManualClock()
    bench = Bench(redis_stores(redis_server, clock), clock)
    first = await blocked(bench)
    await redis_server.connect().execute_command("DEL", Keys().run("f", first.name.cycle, 0))
    await bench.stores.open_runs.forget(first.name)
    assert await bench.stores.firings.waiting([partition_of("f")], 9) == ["f"]


async def test_waiting_time_begins_with_the_run_id_of_its_own_request(bench: Bench) -> None:
    due = await running(bench, overlap=OverlapPolicy.QUEUE_ALL)
    first = await tick(bench, due)
    assert first is not None
    waiting = []
    for _ in range(2):
        bench.clock.advance(MINUTE)
        waiting.append(await bench.scheduled_request(bench.now))
        assert (await bench.begin(waiting[-1])).outcome is BeginOutcome.SETTLED
    for request in waiting:
        await bench.end(first)
        first = await bench.begun(bench.queued_request())
        assert (first.facts.run_id, first.facts.planned_ms) == (request.run_id, request.planned_ms)
        assert (await bench.state(first.name)).facts.run_id == request.run_id


async def test_queue_one_drops_times_beyond_the_first(bench: Bench) -> None:
    due = await running(bench, overlap=OverlapPolicy.QUEUE_ONE)
    await tick(bench, due)
    for _ in range(2):
        bench.clock.advance(MINUTE)
        await tick(bench, bench.now)
    assert [line[1:] for line in await bench.firings()] == [
        ("fired", 0, 1, ""),
        ("queued", -1, 1, "cycle 0 was running"),
        ("dropped", -1, 1, "cycle 0 was running, with 1 already waiting"),
    ]


async def test_queue_all_begins_up_to_a_hundred_waiting_times_in_order(bench: Bench) -> None:
    due = await running(bench, overlap=OverlapPolicy.QUEUE_ALL)
    state = await tick(bench, due)
    assert state is not None
    for _ in range(101):
        bench.clock.advance(MINUTE)
        await tick(bench, bench.now)
    assert (await bench.firings())[-1][1:] == ("dropped", -1, 1, "cycle 0 was running, with 100 already waiting")
    for place in range(1, 101):
        await bench.end(state)
        state = await bench.begun(bench.queued_request())
        assert state.facts.planned_ms == due + place * MINUTE
