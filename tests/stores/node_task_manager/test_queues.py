"""The order of claims: users take turns, and each user's urgent and old node tasks go first; queues are bounded."""

import pytest
from msgspec import structs

from tests.no_writes import refusing_writes
from tests.servers import RedisServer
from tests.stores.node_task_manager.shards import Bench, memory_shard, plan_of, redis_shard
from tradewind.node_task_manager.domain.component import RunSubmission
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.plan import Plan, PlanNode
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.ports.work import Vacancy
from tradewind.server.clock import ManualClock


def ranked(**priorities: int) -> Plan:
    """Return nodes without edges, with these priorities."""
    nodes = tuple(PlanNode(name, "noop", priority=at) for name, at in priorities.items())
    return Plan(f"ranked {priorities}", nodes, ())


async def names(bench: Bench, credits: int = 100) -> list[str]:
    return [taken.task_id.rpartition(":")[2] for taken in await bench.take(credits)]


async def test_the_higher_priority_goes_first(bench: Bench) -> None:
    await bench.submit(ranked(low=-5, plain=0, high=5, mid=1))
    assert await names(bench) == ["high", "mid", "plain", "low"]


async def test_priority_orders_nodes_that_become_ready_together(bench: Bench) -> None:
    nodes = (PlanNode("a", "noop"), PlanNode("b", "noop"), PlanNode("c", "noop", priority=3))
    plan = Plan("ordered", nodes, plan_of("a>b a>c").edges)
    await bench.submit(plan)
    (a,) = await bench.take()
    await bench.complete(a, out="1")
    assert await names(bench, 1) == ["c"]
    assert await names(bench, 1) == ["b"]


async def test_one_step_of_priority_is_worth_a_minute_of_waiting(bench: Bench) -> None:
    await bench.submit(ranked(old=-1), cycle=0)
    bench.clock.advance(59_999)
    await bench.submit(ranked(young=0), cycle=1)
    assert await names(bench, 1) == ["young"]
    bench.clock.advance(2)
    await bench.submit(ranked(younger=0), cycle=2)
    assert await names(bench) == ["old", "younger"]


async def test_long_queue_of_a_user_delays_another_by_at_most_one_turn(bench: Bench) -> None:
    await bench.submit(plan_of(" ".join(f"n{at}" for at in range(200))), user_id="ann")
    while (await bench.shard.claim()).todo:
        pass
    await bench.submit(plan_of("mine"), flow_id="other", user_id="bob")
    assert "mine" in await names(bench, 2)


async def wide(bench: Bench, user_id: str, count: int = 60) -> None:
    """Queue many node tasks of a user: `<user>0` and so on."""
    await bench.submit(plan_of(" ".join(f"{user_id}{at}" for at in range(count))), flow_id=user_id, user_id=user_id)


async def test_new_user_is_next_in_turn(bench: Bench) -> None:
    await wide(bench, "ann")
    # This holds even after another user has had many turns at once while alone.
    assert len(await names(bench, 20)) == 20
    await bench.submit(plan_of("mine"), flow_id="other", user_id="zoe")
    assert await names(bench, 1) == ["mine"]


async def test_user_with_one_node_task_at_a_time_gets_no_extra_turns(bench: Bench) -> None:
    await wide(bench, "ann")
    await names(bench, 5)
    taken: list[str] = []
    for cycle in range(10):
        await bench.submit(plan_of("bob"), flow_id="bob", cycle=cycle, user_id="bob")
        while not taken or taken[-1] != "bob" or taken.count("bob") <= cycle:
            taken += await names(bench, 1)
    whose = ["bob" if name == "bob" else "ann" for name in taken]
    assert whose == ["bob", "ann"] * 9 + ["bob"]


async def test_new_users_do_not_deprive_waiting_users_of_turns(bench: Bench) -> None:
    """However many newcomers there are, each has one turn first; then the others take turns again."""
    await wide(bench, "ann")
    await wide(bench, "bea")
    await names(bench, 4)
    for at in range(3):
        await bench.submit(plan_of(f"new{at}"), flow_id=f"new{at}", user_id=f"new{at}")
    taken = await names(bench, 7)
    assert {name for name in taken if name.startswith("new")} == {"new0", "new1", "new2"}
    assert sum(name.startswith("ann") for name in taken) == 2
    assert sum(name.startswith("bea") for name in taken) == 2


@pytest.fixture
def bounded(store: RedisServer | None, clock: ManualClock) -> Bench:
    """A shard in which three ready node tasks of a user may wait."""
    limits = Limits(user_queue=3)
    return Bench(memory_shard(clock, limits) if store is None else redis_shard(store, clock, limits), clock)


async def test_user_queue_is_bounded_and_a_refused_run_leaves_no_records(bounded: Bench) -> None:
    bench = bounded
    assert await bench.submit(plan_of("a b"), cycle=0) == "accepted"
    assert await bench.submit(plan_of("a b"), cycle=1) == "queue_full"
    assert await bench.statuses(plan_of("a b"), cycle=1) == {"a": "-", "b": "-"}
    assert await bench.submit(plan_of("c"), cycle=1) == "accepted"
    assert await bench.submit(plan_of("a b"), user_id="bob", flow_id="other") == "accepted"
    await bench.take()
    assert await bench.submit(plan_of("a b"), cycle=2) == "accepted"
    # Runs that come together count together.
    await bench.take()
    of_bob, of_cal = (
        RunSubmission(RunName(user, 9, 0), "r9", user, (("0", plan_of("a b").digest),), 3, begun_ms=bench.clock())
        for user in ("bob", "cal")
    )
    later = structs.replace(of_bob, run=RunName("bob", 10, 0))
    submitted = await bench.shard.submit([of_bob, of_cal, later])
    assert [each.outcome for each in submitted.results] == ["accepted", "accepted", "queue_full"]


async def test_what_waits_for_the_limit_on_its_user_counts_as_queued(bounded: Bench) -> None:
    bounded.shard.configure(SystemConfig(max_running_per_user=1))
    assert await bounded.submit(plan_of("a b c")) == "accepted"
    assert len(await bounded.take()) == 1
    assert await bounded.submit(plan_of("d e"), cycle=1) == "queue_full"
    assert await bounded.submit(plan_of("d"), cycle=1) == "accepted"


async def test_runs_are_refused_while_too_many_events_wait(store: RedisServer | None, clock: ManualClock) -> None:
    limits = Limits(events_per_partition=2)
    bench = Bench(memory_shard(clock, limits) if store is None else redis_shard(store, clock, limits), clock)
    for cycle in range(2):
        await bench.submit(plan_of("a"), cycle=cycle)
        (a,) = await bench.take()
        await bench.complete(a)
    assert await bench.submit(plan_of("a"), cycle=2) == "events_full"
    (first, _) = await bench.shard.read({3: "0"}, 10)
    await bench.shard.acknowledge({3: first.event_id})
    assert await bench.submit(plan_of("a"), cycle=2) == "accepted"


async def test_components_that_are_stopped_or_begin_later_need_no_room_in_the_queue(bounded: Bench) -> None:
    assert await bounded.submit(plan_of("a b c"), flow_id="other") == "accepted"
    main, last = plan_of("d e"), plan_of("f")
    await bounded.shard.save(main)
    await bounded.shard.save(last)
    parts = (("0", main.digest), ("1", last.digest))
    run = RunSubmission(RunName("flow", 0, 0), "r0", "default", parts, 3, withheld=("1",), begun_ms=bounded.clock())
    assert (await bounded.shard.submit([run])).results[0].outcome == "queue_full"
    await bounded.shard.stop(run.run, "r0", "", "enough", "ann", 3_600_000)
    assert (await bounded.shard.submit([run])).results[0].outcome == "accepted"
    assert await bounded.statuses(main) == {"d": "skipped", "e": "skipped"}
    assert await bounded.statuses(last) == {"f": "-"}


async def test_queued_running_and_completed_node_tasks_are_counted(bench: Bench) -> None:
    await bench.submit(plan_of("a b c"), user_id="ann")
    await bench.submit(plan_of("d"), flow_id="other", user_id="bob")
    (first, *_) = await bench.take(2)
    await bench.complete(first)
    queues = {(each.node_type, each.user_id): each.count for each in await bench.shard.queues()}
    assert queues == {("noop", "ann"): 2}
    assert await bench.shard.running(10) == (1, {("noop", "bob"): 1})
    assert await bench.shard.totals() == {"completed": 1}


async def test_queues_say_since_when_their_next_node_task_waits(bench: Bench) -> None:
    # Its last node is on record from the first input on, and ready from the second.
    await bench.submit(plan_of("a>c b>c"), user_id="cal", flow_id="cal")
    for entry in await bench.take():
        bench.clock.advance(5000)
        await bench.complete(entry, out="1")
    for user in ("ann", "bob"):
        for cycle in (1, 2):
            bench.clock.advance(1000)
            await bench.submit(plan_of("a"), user_id=user, flow_id=user, cycle=cycle)
    now_ms = bench.clock.now_ms()
    found = [(each.user_id, each.count, now_ms - each.first_ready_at) for each in await bench.shard.queues()]
    assert found == [("ann", 2, 3000), ("bob", 2, 1000), ("cal", 1, 4000)]


async def test_queues_are_counted_while_the_store_takes_no_writes(redis_server: RedisServer) -> None:
    bench = Bench(redis_shard(redis_server, ManualClock()), ManualClock())
    await bench.submit(plan_of("a b"))
    await bench.take(1)
    async with refusing_writes(redis_server, "the store has too few replicas and accepts no writes"):
        assert [each.count for each in await bench.shard.queues()] == [1]
        assert await bench.shard.running(10) == (1, {("noop", "default"): 1})


async def test_many_queues_and_running_node_tasks_are_counted_within_the_store(redis_server: RedisServer) -> None:
    admin, users = redis_server.connect(), 600
    bench = Bench(redis_shard(redis_server, ManualClock()), ManualClock())
    for user in range(users):
        await bench.submit(plan_of("a"), flow_id=f"flow{user}", user_id=f"user{user}")

    async def bytes_in() -> int:
        return int((await admin.info("stats"))["total_net_input_bytes"])

    before = await bytes_in()
    assert len(await bench.shard.queues()) == users
    assert await bytes_in() - before < 30 * users
    while await bench.take():
        pass
    before = await bytes_in()
    count, running = await bench.shard.running(500)
    assert (count, running.total(), len(running)) == (users, 500, 500)
    assert await bytes_in() - before < 30 * users


async def test_user_with_a_chain_takes_turns_with_a_user_with_many_node_tasks(bench: Bench) -> None:
    for many, single in (("ann", "bob"), ("zoe", "cid")):
        await bench.submit(plan_of(" ".join(f"n{at}" for at in range(20))), flow_id=f"of-{many}", user_id=many)
        chain = " ".join(f"c{at}>c{at + 1}" for at in range(5))
        await bench.submit(plan_of(chain), flow_id=f"of-{single}", user_id=single)
        order = []
        for _ in range(10):
            (taken,) = await bench.take(1)
            order.append(taken.user_id)
            await bench.complete(taken, out="1")
        assert order.count(single) >= 4, order
        await bench.shard.purge(f"of-{many}")
        await bench.shard.purge(f"of-{single}")


async def test_what_has_large_inputs_is_given_out_in_several_scripts(redis_bench: Bench) -> None:
    """A script ends with the turn that brings the inputs to 2 MiB; of a user who is alone, a turn takes up to 32."""
    await redis_bench.shard.save(plan_of("a"))
    inputs = '"' + "x" * 100_000 + '"'
    runs = [
        RunSubmission(RunName("flow", at, 0), f"r{at}", "default", (("0", "a/skip_downstream"),), 3, inputs_json=inputs)
        for at in range(60)
    ]
    room = [Vacancy("w1", 0, 100, ("noop",))]
    effects = (await redis_bench.shard.submit(runs, room)).effects
    given = [effects.assignments]
    while effects.ready_types:
        effects = await redis_bench.shard.claim(room)
        given.append(effects.assignments)
    assert [len(each) for each in given] == [21, 32, 7]
    assert {each.run_inputs for each in effects.assignments} == {inputs}
