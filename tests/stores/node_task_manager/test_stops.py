"""Stops of runs and terminations of single node tasks, for every store."""

import pytest

from tests.servers import RedisServer
from tests.stores.node_task_manager.shards import RUN, Bench, held, memory_shard, only_component, plan_of, redis_shard
from tradewind.node_task_manager.domain.component import ComponentStatus
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.node_task import NodeTaskStatus
from tradewind.server.clock import ManualClock


async def test_run_submitted_after_its_stop_begins_stopped(bench: Bench) -> None:
    plan = plan_of("a>b")
    await bench.shard.stop(RUN, "r0", "", "enough", "ann", 1000)
    await bench.submit(plan)
    assert await bench.statuses(plan) == {"a": "skipped", "b": "skipped"}
    component = await only_component(bench)
    assert component.stop is not None
    assert (component.stop.reason, component.stop.by) == ("enough", "ann")
    assert component.status is ComponentStatus.FINISHED


async def test_stop_mark_of_another_run_id_is_ignored(bench: Bench) -> None:
    await bench.shard.stop(RUN, "other", "", "enough", "ann", 1000)
    await bench.submit(plan_of("a"))
    assert len(await bench.take()) == 1


@pytest.mark.parametrize("component", ["", "0"])
async def test_stop_of_another_run_id_does_not_hide_a_later_one(bench: Bench, component: str) -> None:
    await bench.shard.stop(RUN, "other", "", "theirs", "bob", 1000)
    await bench.shard.stop(RUN, "r0", component, "mine", "ann", 1000)
    await bench.submit(plan_of("a"))
    stop = (await only_component(bench)).stop
    assert stop is not None
    assert (stop.reason, stop.by) == ("mine", "ann")


async def test_stop_skips_waiting_nodes_and_asks_running_ones_to_stop(bench: Bench) -> None:
    plan = plan_of("a>c b>c")
    await bench.submit(plan)
    (a,) = await bench.take(1)
    effects = await bench.shard.stop(RUN, "r0", "", "enough", "ann", 1000)
    assert effects.results == ("2", "1")
    assert [t.stop.reason for t in effects.terminations] == ["enough"]
    again = await bench.shard.renew("w1", 0, held(a))
    assert [t.task_id for t in again.effects.terminations] == [a.task_id]
    bench.clock.advance(10_001)
    await bench.shard.reap()
    assert await bench.statuses(plan) == {"a": "terminated", "b": "skipped", "c": "skipped"}


async def test_queued_node_tasks_that_a_stop_has_yet_to_reach_do_not_begin(
    store: RedisServer | None, clock: ManualClock
) -> None:
    limits = Limits(records_per_script=3)
    bench = Bench(memory_shard(clock, limits) if store is None else redis_shard(store, clock, limits), clock)
    plan = plan_of("a b c d e f g h")
    await bench.submit(plan)
    while (await bench.shard.claim()).todo:
        pass
    await bench.shard.stop(RUN, "r0", "", "enough", "ann", 1000)
    assert await bench.take() == []
    while (await bench.shard.claim()).todo:
        pass
    assert set((await bench.statuses(plan)).values()) == {"skipped"}


async def test_terminating_a_node_task_skips_it_and_its_successors(bench: Bench) -> None:
    plan = plan_of("a>b b>d c")
    await bench.submit(plan)
    assert (await bench.shard.terminate("flow:0:0:b", "0", 1, "no", "ann")).results == ("",)
    assert (await bench.shard.terminate("flow:0:0:a", "0", 0, "no", "ann")).results == ("",)
    assert await bench.statuses(plan) == {"a": "skipped", "b": "skipped", "d": "skipped", "c": "pending"}
    assert (await bench.shard.terminate("nix:0:0:a", "0", 0, "no", "ann")).results == ("unknown",)


async def test_node_terminated_before_its_signals_arrive_does_not_run(bench: Bench) -> None:
    plan = plan_of("a>b b>c a>d c>d")
    await bench.submit(plan)
    (a,) = await bench.take()
    await bench.shard.terminate("flow:0:0:b", "0", 1, "no", "ann")
    assert await bench.statuses(plan) == {"a": "running", "b": "skipped", "c": "skipped", "d": "registered"}
    await bench.complete(a, out="1")
    assert await bench.take() == []
    assert await bench.statuses(plan) == {"a": "completed", "b": "skipped", "c": "skipped", "d": "skipped"}
    assert (await only_component(bench)).skipped == 3


async def test_an_entry_node_terminated_before_its_record_was_made_does_not_run(bench: Bench) -> None:
    plan = plan_of(" ".join(f"n{number}" for number in range(1200)), digest="wide")
    await bench.submit(plan)
    await bench.shard.terminate("flow:0:0:n1199", "0", 1199, "no", "ann")
    while (await bench.shard.claim()).todo:
        pass
    (last,) = await bench.shard.tasks(["flow:0:0:n1199"])
    assert last is not None
    assert (last.status, last.reason) == (NodeTaskStatus.SKIPPED, "no")
    assert (await only_component(bench)).open == 1199


async def test_reconnecting_repeats_stop_requests_without_extending_their_grace(bench: Bench) -> None:
    await bench.submit(plan_of("a b", start_to_close_ms=5_000))
    a, b = await bench.take()
    await bench.shard.terminate(a.task_id, "0", 0, "no", "ann")
    until = bench.clock() + 10_000
    bench.clock.advance(4_000)
    opened = await bench.shard.open_session("w1", "i1", held(a, b))
    assert [each.task_id for each in opened.effects.terminations] == [a.task_id]
    stopping, running = await bench.shard.tasks([a.task_id, b.task_id])
    assert stopping is not None
    assert running is not None
    # The grace of a stop, and the attempt's own time limit plus the grace for its own report.
    assert (stopping.lease_deadline, running.lease_deadline) == (until, until + 5_000)
