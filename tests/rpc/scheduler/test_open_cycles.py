"""Open cycles are looked after: they end, whatever was lost."""

import time

import pytest_asyncio

from tests.rpc.scheduler.conftest import Client, Peers, Start
from tests.servers import RedisServer
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import component_pb2
from tradewind.api.scheduler.v1 import cycle_pb2, stop_pb2
from tradewind.scheduler.stores.keys import ACL, Keys
from tradewind.server.metrics import REGISTRY, SWITCH
from tradewind.server.partitions import partition_of


@pytest_asyncio.fixture
async def watchful(start: Start, peers: Peers) -> Client:
    """A scheduler that checks often."""
    client = await start(scheduler_check_in_seconds=0.1, scheduler_reconcile_seconds=0.1)
    await until(lambda: peers.triggers.listens("f"), "the scheduler listens")
    return client


async def test_unsubmitted_cycle_is_submitted_by_the_next_scheduler(
    start: Start, peers: Peers, embedded: RedisServer
) -> None:
    first = await start()
    await first.register()
    await peers.node_tasks.go_down()
    await first.run(wait=0)
    await first.server.stop()
    await peers.node_tasks.come_up()
    second = await start()
    assert (await second.ended()).status == cycle_pb2.CYCLE_STATUS_COMPLETED
    assert peers.node_tasks.runs["f", 0, 0].submission.run_id == (await second.cycle()).run_id


async def test_end_whose_event_was_lost_is_detected(watchful: Client, peers: Peers) -> None:
    peers.node_tasks.withholds_events = True
    await watchful.register()
    cycle = await watchful.run()
    assert cycle.status == cycle_pb2.CYCLE_STATUS_COMPLETED
    assert len(peers.node_tasks.unacknowledged) == 1


async def test_ends_of_many_components_with_long_stop_reasons_are_detected(watchful: Client, peers: Peers) -> None:
    peers.node_tasks.automatic, peers.node_tasks.withholds_events = False, True
    await watchful.register("f", *(f"n{place}" for place in range(1000)))
    for _ in range(2):
        await watchful.run(wait=0)
    await watchful.stop(reason="€" * 1000)
    for cycle in range(2):
        assert (await watchful.ended(cycle=cycle)).status == cycle_pb2.CYCLE_STATUS_CANCELLED


async def test_run_that_the_node_task_manager_lost_is_resubmitted(watchful: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await watchful.register()
    await watchful.run(wait=0)
    peers.node_tasks.runs.clear()
    await until(lambda: ("f", 0, 0) in peers.node_tasks.runs, "the run is there again")
    await peers.node_tasks.finish(("f", 0, 0))
    assert (await watchful.ended()).status == cycle_pb2.CYCLE_STATUS_COMPLETED


async def test_reason_for_waiting_is_cleared_once_a_cycle_runs(watchful: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await watchful.register()
    await peers.node_tasks.go_down()
    assert "tried again" in (await watchful.run(wait=0)).reason
    await peers.node_tasks.come_up()

    async def runs() -> bool:
        cycle = await watchful.cycle()
        return cycle.status == cycle_pb2.CYCLE_STATUS_RUNNING and not cycle.reason

    await until(runs, "the cycle runs and waits for nothing")
    assert ("f", 0, 0) in peers.node_tasks.runs


async def test_stop_is_kept_after_the_store_lost_a_later_state_of_the_cycle(
    scheduler: Client, peers: Peers, embedded: RedisServer
) -> None:
    """The scheduler remembers a state of the same version, which must not overwrite the one with the stop."""
    peers.node_tasks.automatic = False
    await scheduler.register("f", "a", "b")
    await scheduler.run(wait=0)
    await peers.node_tasks.finish(("f", 0, 0), "0")

    async def folded() -> bool:
        return (await scheduler.cycle()).version == 2

    await until(folded, "the end of a component is on record")
    await embedded.on_node(embedded.nodes[0], "HDEL", Keys().run("f", 0, 0), "version", "component:0")
    await embedded.on_node(embedded.nodes[0], "CLIENT", "KILL", "USER", ACL.name)
    await scheduler.stub.StopCycle(stop_pb2.StopCycleRequest(flow_id="f"))
    assert (await scheduler.ended()).status == cycle_pb2.CYCLE_STATUS_CANCELLED


async def test_number_of_a_cycle_that_the_store_lost_is_not_used_again(
    scheduler: Client, peers: Peers, embedded: RedisServer
) -> None:
    await scheduler.register()
    for cycle in range(2):
        assert (await scheduler.run()).cycle == cycle
    await embedded.on_node(embedded.nodes[0], "DEL", Keys().run("f", 1, 0))
    await embedded.on_node(embedded.nodes[0], "ZREM", Keys().cycles("f"), "1:0")
    await embedded.on_node(embedded.nodes[0], "HSET", Keys().flow("f"), "last_cycle", "0")
    peers.node_tasks.runs.clear()
    await embedded.on_node(embedded.nodes[0], "CLIENT", "KILL", "USER", ACL.name)
    assert (await scheduler.run()).cycle == 2


async def test_a_cycle_that_takes_too_long_times_out(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register("f", "a", "b", edges="a>b", timeout="200ms")
    cycle = await scheduler.run()
    assert cycle.status == cycle_pb2.CYCLE_STATUS_TIMEOUT
    assert cycle.reason.startswith("the cycle took longer than its timeout of 0.2 s")
    took = cycle.end_time.ToMilliseconds() - cycle.start_time.ToMilliseconds()
    assert 200 <= took < 4000
    assert peers.node_tasks.stops[0].by == "system"


async def test_cycle_that_ended_while_no_scheduler_ran_has_not_timed_out(start: Start, peers: Peers) -> None:
    peers.node_tasks.automatic, peers.node_tasks.withholds_events = False, True
    first = await start()
    await first.register("f", timeout="3s")
    cycle = await first.run(wait=0)
    await first.server.stop()
    await peers.node_tasks.finish(("f", 0, 0))
    deadline_ms = cycle.start_time.ToMilliseconds() + 3000
    await until(lambda: time.time_ns() // 1_000_000 > deadline_ms, "the time limit of the cycle has passed")
    second = await start()
    assert (await second.ended()).status == cycle_pb2.CYCLE_STATUS_COMPLETED
    assert not peers.node_tasks.stops


async def test_stopped_unsubmitted_cycle_ends_as_cancelled(watchful: Client, peers: Peers) -> None:
    await watchful.register("f", "a", "b")
    await peers.node_tasks.go_down()
    await watchful.run(wait=0)
    await watchful.stop()
    await peers.node_tasks.come_up()
    cycle = await watchful.ended()
    assert cycle.status == cycle_pb2.CYCLE_STATUS_CANCELLED
    assert (cycle.counts.completed, cycle.counts.skipped) == (0, 2)


async def test_repeated_events_and_events_of_unknown_runs_are_ignored(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register("f", "a", "b")
    await scheduler.run(wait=0)
    event = await peers.node_tasks.finish(("f", 0, 0), "0")
    await peers.node_tasks.repeat(event)
    stranger = type(event)()
    stranger.CopyFrom(event)
    stranger.component_finished.component.run_id = "of another life"
    stranger.component_finished.component.component_id = "1"
    await peers.node_tasks.repeat(stranger)
    unknown = type(event)()
    unknown.CopyFrom(event)
    unknown.component_finished.component.cycle = 99
    await peers.node_tasks.repeat(unknown)
    await until(lambda: not peers.node_tasks.unacknowledged, "every event is acknowledged")
    cycle = await scheduler.cycle()
    assert (cycle.status, cycle.counts.completed) == (cycle_pb2.CYCLE_STATUS_RUNNING, 1)
    await peers.node_tasks.repeat(event)
    await peers.node_tasks.finish(("f", 0, 0), "1")
    ended = await scheduler.ended()
    await peers.node_tasks.repeat(event)
    await until(lambda: not peers.node_tasks.unacknowledged, "every event is acknowledged")
    assert await scheduler.cycle() == ended


async def test_cycle_fails_when_its_revision_is_missing(start: Start, peers: Peers, embedded: RedisServer) -> None:
    SWITCH.turn(1)
    try:
        counted = failures()
        await definition_is_gone(start, peers, embedded)
        assert failures() == counted + 1
    finally:
        SWITCH.turn(-1)


def failures() -> float:
    """Return how many cycles have been counted as failed."""
    return REGISTRY.get_sample_value("tradewind_cycles_ended_total", {"status": "failed"}) or 0


async def definition_is_gone(start: Start, peers: Peers, embedded: RedisServer) -> None:
    first = await start()
    await first.register()
    await peers.node_tasks.go_down()
    await first.run(wait=0)
    await first.register("f", "a", "b")
    await first.server.stop()
    client = embedded.connect(ACL.name)
    await client.delete(Keys().revisions("f"))
    await client.end()
    await peers.node_tasks.come_up()
    second = await start()
    cycle = await second.ended()
    assert cycle.status == cycle_pb2.CYCLE_STATUS_FAILED
    assert cycle.reason == "revision 1 of the flow is no longer on record"


async def test_open_entry_without_record_is_removed(watchful: Client, peers: Peers, embedded: RedisServer) -> None:
    peers.node_tasks.automatic = False
    await watchful.register()
    await watchful.run(wait=0)
    client, keys = embedded.connect(ACL.name), Keys()
    await client.delete(keys.run("f", 0, 0))

    async def removed() -> bool:
        return not await client.zcard(keys.open(partition_of("f")))

    await until(removed, "the entry is removed")
    assert (await watchful.flow()).running_cycles == 0
    await client.end()


async def test_broken_event_stream_is_reopened(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    await scheduler.run()
    await peers.node_tasks.go_down()
    await until(lambda: peers.node_tasks.down, "the stream is broken")
    await peers.node_tasks.come_up()
    cycle = await scheduler.run(wait=30)
    assert cycle.status == cycle_pb2.CYCLE_STATUS_COMPLETED


async def test_cycle_ends_despite_a_short_outage_of_the_store(
    start: Start, peers: Peers, embedded: RedisServer
) -> None:
    scheduler = await start()
    peers.node_tasks.automatic = False
    await scheduler.register()
    await scheduler.run(wait=0)
    admin = embedded.connect()
    await admin.execute_command("CLIENT", "PAUSE", 300)
    await peers.node_tasks.finish(("f", 0, 0))
    assert (await scheduler.ended()).status == cycle_pb2.CYCLE_STATUS_COMPLETED
    await admin.end()


async def test_component_whose_run_is_not_on_record_is_stopped(watchful: Client, peers: Peers) -> None:
    component = component_pb2.Component(flow_id="f", cycle=9, run=1, run_id="lost", component_id="2")
    component.submitted_at.GetCurrentTime()
    young = component_pb2.ComponentOpen(component=component, user_id="ann")
    component.submitted_at.FromSeconds(int(time.time()) - 4000)
    old = component_pb2.ComponentOpen(component=component, user_id="ann")
    for opened in (young, old):
        await peers.node_tasks.repeat(component_pb2.Event(partition=partition_of("f"), component_open=opened))
    await until(lambda: peers.node_tasks.stops, "it is stopped")
    await until(lambda: not peers.node_tasks.unacknowledged, "both questions are answered")
    (stop,) = peers.node_tasks.stops
    assert (stop.flow_id, stop.cycle, stop.run, stop.run_id, stop.component_id) == ("f", 9, 1, "lost", "2")
    assert (stop.user_id, stop.by) == ("ann", "system")
