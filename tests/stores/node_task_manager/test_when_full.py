"""What happens to node tasks whose key is full: `when_full`."""

import pytest

from tests.stores.node_task_manager.shards import Bench, plan_of, task_of
from tests.stores.node_task_manager.test_limits import keyed, names
from tests.stores.node_task_manager.test_retries import fail
from tests.stores.node_task_manager.test_waiting import signal, suspend
from tradewind.node_task_manager.domain.concurrency import Concurrency, WhenFull
from tradewind.node_task_manager.domain.plan import Plan, PlanNode
from tradewind.node_task_manager.domain.retry import RetryPolicy
from tradewind.node_task_manager.domain.waiting import Wait
from tradewind.node_task_manager.ports.work import Vacancy

IN_TURN = Concurrency("acct-7", 1)


async def take_key(bench: Bench, priority: int = 0) -> None:
    """Let a node task of another flow take the key."""
    node = PlanNode("x", "noop", priority=priority, concurrency=IN_TURN)
    await bench.submit(Plan("other", (node,), ()), flow_id="other", run_id="other")
    assert [taken.task_id for taken in await bench.take()] == ["other:0:0:x"]


async def test_drop_new_skips_new_node_tasks_of_a_full_key(bench: Bench) -> None:
    await bench.submit(keyed(1, WhenFull.DROP_NEW))
    (a,) = await bench.take()
    assert await bench.statuses(keyed(1)) == {"a": "running", "b": "skipped", "c": "skipped"}
    (b,) = [task for task in await bench.shard.tasks(["flow:0:0:b"]) if task]
    assert b.reason == 'key "acct-7" is full (1 of 1 running) and when_full is drop_new'
    await bench.complete(a)
    assert await bench.take() == []


async def test_keep_newest_skips_older_waiting_node_tasks_of_a_full_key(bench: Bench) -> None:
    await bench.submit(keyed(1, WhenFull.KEEP_NEWEST))
    (a,) = await bench.take()
    assert await bench.statuses(keyed(1)) == {"a": "running", "b": "skipped", "c": "pending"}
    await bench.complete(a)
    assert await names(bench) == ["c"]


async def test_cancel_oldest_stops_the_oldest_node_task_of_a_full_key(bench: Bench) -> None:
    await bench.submit(keyed(2, WhenFull.CANCEL_OLDEST, "a b"), flow_id="f")
    old = await bench.take()
    bench.clock.advance(10)
    await bench.submit(keyed(2, WhenFull.CANCEL_OLDEST, "c"), flow_id="g")
    effects = await bench.shard.claim([Vacancy("w1", 0, 10, ("noop",))])
    assert [each.task_id for each in effects.terminations] == ["f:0:0:a"]
    assert effects.assignments == ()
    await bench.shard.give_back("w1", 0, None)
    assert "g:0:0:c" in [each.task_id for each in await bench.take()]
    assert len(old) == 2


async def test_cancel_oldest_stops_one_node_task_for_each_new_one(bench: Bench) -> None:
    many = " ".join(f"n{place:03}" for place in range(250))
    await bench.submit(keyed(250, WhenFull.CANCEL_OLDEST, many), flow_id="f")
    assert len(await bench.take(125) + await bench.take(125)) == 250
    bench.clock.advance(10)
    newer = keyed(250, WhenFull.CANCEL_OLDEST, many)
    await bench.submit(newer, flow_id="g")

    stopped: list[str] = []
    while len(stopped) < 250:
        stopping = (await bench.shard.claim([Vacancy("w1", 0, 250, ("noop",))])).terminations
        assert stopping
        stopped += [each.task_id for each in stopping]

    assert stopped == [f"f:0:0:n{place:03}" for place in range(250)]
    assert set((await bench.statuses(newer, flow_id="g")).values()) == {"pending"}


@pytest.mark.parametrize("when_full", [WhenFull.DROP_NEW, WhenFull.CANCEL_OLDEST])
async def test_retry_waits_for_its_key(bench: Bench, when_full: WhenFull) -> None:
    plan = plan_of("a", retry=RetryPolicy(attempts=3, jitter=0), concurrency=Concurrency("acct-7", 1, when_full))
    await bench.submit(plan)
    (first,) = await bench.take()
    await fail(bench, first)
    await take_key(bench)
    bench.clock.advance(60_000)
    effects = await bench.shard.claim([Vacancy("w1", 0, 10, ("noop",))])
    assert (effects.assignments, effects.terminations) == ((), ())
    assert (await task_of(bench)).status == "pending"


async def test_node_task_that_waited_for_a_signal_waits_for_its_key(bench: Bench) -> None:
    await bench.submit(keyed(1, WhenFull.DROP_NEW, "a"))
    (first,) = await bench.take()
    await suspend(bench, first, Wait("paid"))
    await take_key(bench)
    assert await signal(bench) == "resumed"
    assert await bench.take() == []
    assert (await task_of(bench)).status == "pending"


async def test_node_task_that_was_given_back_waits_for_its_key(bench: Bench) -> None:
    await bench.submit(keyed(1, WhenFull.DROP_NEW, "a"))
    await bench.take()
    await bench.shard.give_back("w1", 0, None)
    await take_key(bench, priority=5)
    assert (await task_of(bench)).status == "pending"


async def test_node_task_is_judged_by_its_key_though_its_flow_held_it_back_before(bench: Bench) -> None:
    nodes = (PlanNode("busy", "noop"), PlanNode("c", "noop", concurrency=Concurrency("acct-7", 1, WhenFull.DROP_NEW)))
    plan = Plan("one at a time", nodes, (), max_running=1)
    await take_key(bench)
    await bench.submit(plan)
    (busy,) = await bench.take()
    assert await bench.statuses(plan) == {"busy": "running", "c": "pending"}
    await bench.complete(busy)
    await bench.take()
    assert await bench.statuses(plan) == {"busy": "completed", "c": "skipped"}


@pytest.mark.parametrize("when_full", [WhenFull.KEEP_NEWEST, WhenFull.CANCEL_OLDEST])
async def test_longest_waiting_node_task_is_skipped_whatever_its_type(bench: Bench, when_full: WhenFull) -> None:
    key = Concurrency("acct-7", 1, when_full)
    for name, node_type in (("holder", "one"), ("old", "one"), ("new", "two")):
        bench.clock.advance(10)
        await bench.submit(Plan(name, (PlanNode("n", node_type, concurrency=key),), ()), flow_id=name)
        await bench.take(10, "w1", "one", "two")
    tasks = await bench.shard.tasks(["holder:0:0:n", "old:0:0:n", "new:0:0:n"])
    assert [task.status for task in tasks if task] == ["running", "skipped", "pending"]


async def test_node_tasks_that_wait_in_turn_are_skipped_in_that_turn(bench: Bench) -> None:
    async def submit(flow: str, node_type: str, when_full: WhenFull) -> list[str]:
        bench.clock.advance(10)
        node = PlanNode("n", node_type, concurrency=Concurrency("acct-7", 1, when_full))
        await bench.submit(Plan(flow, (node,), ()), flow_id=flow)
        effects = await bench.shard.claim([Vacancy("w1", 0, 9, ("one", "two"))])
        tasks = await bench.shard.tasks([f"{each}:0:0:n" for each in ("w1", "w2", "w3", "c0", "c1", "c2", "c3")])
        skipped = [task.task_id for task in tasks if task and task.status == "skipped"]
        return [each.task_id for each in effects.terminations] + skipped

    for flow, node_type in (("holder", "one"), ("w1", "two"), ("w2", "one"), ("w3", "two")):
        assert await submit(flow, node_type, WhenFull.WAIT) == []
    ended = [await submit(f"c{at}", "one", WhenFull.CANCEL_OLDEST) for at in range(4)]
    waiters = [f"w{at}:0:0:n" for at in (1, 2, 3)]
    assert ended == [["holder:0:0:n"], waiters[:1], waiters[:2], waiters]
    assert await submit("newest", "two", WhenFull.KEEP_NEWEST) == [*waiters, *(f"c{at}:0:0:n" for at in range(4))]
