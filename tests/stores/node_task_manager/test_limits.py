"""How many node tasks run at once, and what happens to the others."""

import pytest

from tests.stores.node_task_manager.shards import Bench, completed, held, plan_of, task_of
from tradewind.node_task_manager.domain.concurrency import Concurrency, WhenFull
from tradewind.node_task_manager.domain.plan import Plan, PlanNode
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.ports.work import Assignment, Vacancy
from tradewind.server.rates import Rate

FIVE = plan_of("a b c d e")


async def names(bench: Bench, credits: int = 100, *types: str) -> list[str]:
    return [taken.task_id.rpartition(":")[2] for taken in await bench.take(credits, "w1", *types)]


def keyed(most: int, when_full: WhenFull = WhenFull.WAIT, names: str = "a b c") -> Plan:
    return plan_of(names, digest=f"{names} {most} {when_full}", concurrency=Concurrency("acct-7", most, when_full))


@pytest.mark.parametrize(
    ("config", "runs"),
    [
        (SystemConfig(max_running=2), 2),
        (SystemConfig(max_running_per_user=3), 3),
        (SystemConfig(max_running_per_flow=1), 1),
        (SystemConfig(max_running_per_node_type={"noop": 4}), 4),
        (SystemConfig(max_running_per_node_type={"other": 1}), 5),
        (SystemConfig(max_running=4, max_running_per_user=3, max_running_per_flow=2), 2),
    ],
    ids=["all", "user", "flow", "type", "other type", "the narrowest"],
)
async def test_no_more_node_tasks_run_than_system_limits_allow(bench: Bench, config: SystemConfig, runs: int) -> None:
    bench.shard.configure(config)
    await bench.submit(FIVE)
    running = await bench.take()
    assert len(running) == runs
    assert await bench.take() == []
    for ended in range(5):
        if running:
            await bench.complete(running.pop(0))
            running += await bench.take()
        assert len(running) == min(runs, 4 - ended)


async def test_limits_bound_node_tasks_that_become_ready_during_the_claim(bench: Bench) -> None:
    bench.shard.configure(SystemConfig(max_running_per_user=2))
    await bench.submit(plan_of("a>b a>c a>d"))
    (a,) = await bench.take()
    done = await bench.shard.complete([completed(a)], [Vacancy("w1", 0, 10, ("noop",))])
    assert len(done.assignments) == 2


async def test_user_at_the_limit_does_not_block_other_users(bench: Bench) -> None:
    bench.shard.configure(SystemConfig(max_running_per_user=1))
    await bench.submit(FIVE, user_id="ann")
    await bench.submit(FIVE, user_id="bob", flow_id="other")
    first = await bench.take()
    assert sorted(taken.user_id for taken in first) == ["ann", "bob"]
    await bench.complete(next(taken for taken in first if taken.user_id == "ann"))
    assert [taken.user_id for taken in await bench.take()] == ["ann"]


async def test_flow_limit_spans_all_its_cycles(bench: Bench) -> None:
    plan = Plan("two at once", FIVE.nodes, (), max_running=2)
    await bench.submit(plan, cycle=0)
    await bench.submit(plan, cycle=1, run_id="r1")
    await bench.submit(plan_of("x"), flow_id="other")
    assert await names(bench) == ["a", "b", "x"]
    assert await names(bench) == []


async def test_concurrency_key_spans_flows_and_types_but_not_users(bench: Bench) -> None:
    bound = Concurrency("acct-7", 1)
    for flow, user in (("f", "ann"), ("g", "ann"), ("h", "bob")):
        plan = Plan(f"of {flow}", (PlanNode("n", f"type-{flow}", concurrency=bound),), ())
        await bench.submit(plan, flow_id=flow, user_id=user)
    types = ("type-f", "type-g", "type-h")
    first = await bench.take(10, "w1", *types)
    assert sorted(taken.task_id for taken in first) == ["f:0:0:n", "h:0:0:n"]
    await bench.complete(first[0])
    assert [taken.task_id for taken in await bench.take(10, "w1", *types)] == ["g:0:0:n"]


async def test_blocked_node_tasks_run_in_the_order_they_became_ready(bench: Bench) -> None:
    await bench.submit(keyed(1))
    order = []
    while taken := await bench.take():
        order += [each.task_id for each in taken]
        await bench.complete(taken[0])
    assert order == ["flow:0:0:a", "flow:0:0:b", "flow:0:0:c"]


async def test_full_key_does_not_block_other_node_tasks(bench: Bench) -> None:
    await bench.submit(keyed(1, names=" ".join(f"n{at}" for at in range(30))))
    await bench.submit(plan_of("free"), flow_id="other")
    taken = await names(bench)
    assert sorted(taken) == ["free", "n0"]


async def test_node_task_that_is_given_back_twice_in_one_call_frees_one_slot(bench: Bench) -> None:
    await bench.submit(keyed(1))
    (a,) = await bench.take()
    assert (await bench.shard.give_back("w1", 0, held(a, a))).results == ("given_back",)
    assert len(await bench.take()) == 1


async def test_node_task_that_runs_again_without_limits_holds_no_slot(bench: Bench) -> None:
    bench.shard.configure(SystemConfig(max_running_per_user=1, version=1))
    await bench.submit(plan_of("a"))
    await bench.take()
    assert (await task_of(bench)).slots == ("user:default",)
    await bench.shard.give_back("w1", 0, None)
    bench.shard.configure(SystemConfig(version=2))
    (again,) = await bench.take()
    assert (await task_of(bench)).slots == ()
    await bench.complete(again)
    assert await bench.shard.held(["user:default"]) == [0]


async def test_lapsed_lease_frees_its_slots(bench: Bench) -> None:
    await bench.submit(keyed(1))
    assert len(await bench.take()) == 1
    assert await bench.shard.held(["key:default:acct-7", "running"]) == [1, 1]
    bench.clock.advance(40_000)
    await bench.shard.reap()
    assert await bench.shard.held(["key:default:acct-7", "running"]) == [0, 0]
    assert len(await bench.take()) == 1


async def test_start_timeout_does_not_apply_while_waiting_for_a_limit(bench: Bench) -> None:
    plan = plan_of("a b", digest="hurried", schedule_to_start_ms=1000, concurrency=Concurrency("k", 1))
    await bench.submit(plan)
    assert await names(bench) == ["a"]
    for _ in range(3):
        bench.clock.advance(1001)
        assert (await bench.shard.reap()).results == ()
    assert await bench.statuses(plan) == {"a": "running", "b": "pending"}


async def test_changed_limits_admit_blocked_node_tasks(bench: Bench) -> None:
    bench.shard.configure(SystemConfig(max_running_per_user=1, max_running_per_flow=1))
    await bench.submit(FIVE)
    assert len(await bench.take()) == 1
    bench.shard.configure(SystemConfig(max_running_per_flow=3))
    await bench.shard.reopen()
    assert len(await bench.take()) == 2
    bench.shard.configure(SystemConfig())
    await bench.shard.reopen()
    assert len(await bench.take()) == 2


async def test_blocked_node_task_names_its_limit(bench: Bench) -> None:
    await bench.submit(keyed(1))
    await bench.take()
    a, b = [task for task in await bench.shard.tasks(["flow:0:0:a", "flow:0:0:b"]) if task]
    assert (a.slots, a.blocked) == (("key:default:acct-7",), "")
    assert (b.slots, b.blocked) == ((), "key:default:acct-7")


async def test_rate_bounds_starts_of_a_type_and_reports_when_more_may_begin(bench: Bench) -> None:
    bench.shard.configure(SystemConfig(rates={"noop": Rate(2, 60_000)}))
    await bench.submit(FIVE)
    effects = await bench.shard.claim([Vacancy("w1", 0, 10, ("noop",))])
    assert (len(effects.assignments), effects.due_in, effects.ready_types) == (2, 30_000, ())
    bench.clock.advance(29_999)
    assert await bench.take() == []
    bench.clock.advance(1)
    assert len(await bench.take()) == 1
    bench.clock.advance(3_600_000)
    assert len(await bench.take()) == 2


async def test_start_timeout_does_not_apply_while_waiting_for_a_rate(bench: Bench) -> None:
    bench.shard.configure(SystemConfig(rates={"noop": Rate(1, 3_600_000)}))
    plan = plan_of("a b", digest="hurried", schedule_to_start_ms=1000, start_to_close_ms=0)
    await bench.submit(plan)
    (a,) = await bench.take()
    await bench.complete(a)
    bench.clock.advance(1001)
    assert (await bench.shard.reap()).results == ()


@pytest.mark.parametrize(
    "config",
    [
        SystemConfig(max_running_per_user=2),
        SystemConfig(max_running_per_flow=2),
        SystemConfig(max_running_per_node_type={"noop": 2}),
    ],
    ids=["user", "flow", "type"],
)
async def test_running_node_tasks_count_under_a_new_limit(bench: Bench, config: SystemConfig) -> None:
    await bench.submit(FIVE)
    running = await bench.take(3)
    bench.shard.configure(config)
    await bench.shard.reopen()
    assert await bench.take() == []
    await bench.complete(running[0])
    assert await bench.take() == [], "two run, and two may"
    await bench.complete(running[1])
    assert len(await bench.take()) == 1
    # A limit that is removed and set again counts the same.
    bench.shard.configure(SystemConfig())
    await bench.shard.reopen()
    bench.shard.configure(config)
    await bench.shard.reopen()
    assert await bench.take() == []


async def test_a_thousand_running_node_tasks_count_under_a_new_limit(bench: Bench) -> None:
    await bench.submit(plan_of(" ".join(f"n{at}" for at in range(1001))))
    running: list[Assignment] = []
    while len(running) < 1000:
        running += await bench.take(min(500, 1000 - len(running)))
    bench.shard.configure(SystemConfig(max_running_per_user=1000))
    await bench.shard.reopen()
    assert await bench.shard.held(["user:default"]) == [1000]
    assert await bench.take() == []
    await bench.complete(running[0])
    assert len(await bench.take()) == 1


async def test_one_that_another_limit_holds_back_leaves_its_slot_to_the_next(bench: Bench) -> None:
    bench.shard.configure(SystemConfig(max_running_per_flow=1))
    await bench.submit(keyed(1, names="k"), flow_id="other")
    assert await names(bench) == ["k"]
    x = PlanNode("x", "noop", concurrency=Concurrency("acct-7", 1, WhenFull.WAIT))
    await bench.submit(Plan("mixed", (PlanNode("a", "noop"), x, PlanNode("y", "noop")), ()))
    (a,) = await bench.take()
    await bench.complete(a)
    assert await names(bench) + await names(bench) == ["y"]
