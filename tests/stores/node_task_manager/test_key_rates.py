"""How many node tasks with a key begin within a time."""

import pytest

from tests.stores.node_task_manager.shards import Bench, plan_of
from tradewind.node_task_manager.domain.concurrency import Concurrency
from tradewind.node_task_manager.domain.node_task import NodeTaskStatus
from tradewind.node_task_manager.domain.plan import Plan
from tradewind.node_task_manager.ports.work import Vacancy
from tradewind.server.rates import KeyRate, Rate

NODES = "a b c d e f g h"


def keyed(limit: str, cost: int = 1, names: str = NODES, key: str = "acct-7") -> Plan:
    rate = KeyRate(key, Rate.parse(limit), cost)
    return plan_of(names, digest=f"{names} {limit} {cost} {key}", rate=rate)


async def begun(bench: Bench) -> list[str]:
    return [taken.task_id.rpartition(":")[2] for taken in await bench.take()]


@pytest.mark.parametrize(
    ("limit", "cost", "at_once", "each_ms"), [("4/m", 1, 4, 15_000), ("4/m", 2, 2, 30_000), ("3/h", 3, 1, 3_600_000)]
)
async def test_no_more_node_tasks_begin_than_the_rate_allows(
    bench: Bench, limit: str, cost: int, at_once: int, each_ms: int
) -> None:
    await bench.submit(keyed(limit, cost))
    assert await begun(bench) == NODES.split()[:at_once]
    for name in NODES.split()[at_once:]:
        effects = await bench.shard.claim([Vacancy("w1", 0, 10, ("noop",))])
        assert effects.assignments == ()
        assert effects.due_in == each_ms, "it says when to look again"
        bench.clock.advance(each_ms - 1)
        assert await begun(bench) == []
        bench.clock.advance(1)
        assert await begun(bench) == [name]


async def test_node_tasks_waiting_for_a_rate_delay_no_others(bench: Bench) -> None:
    await bench.submit(keyed("1/h", names="a b c d e f g h i j k l"))
    await bench.submit(keyed("1/h", names="m n", key="acct-8"), flow_id="other")
    await bench.submit(plan_of("o p", digest="free"), flow_id="third")
    await bench.submit(keyed("1/h", names="x y"), flow_id="fourth", user_id="bob")
    assert sorted(await begun(bench)) == ["a", "m", "o", "p", "x"]
    (waiting,) = await bench.shard.tasks(["flow:0:0:b"])
    assert waiting is not None
    assert waiting.blocked == "pace:default:acct-7"


async def test_unused_rate_fills_the_bucket_but_never_overfills_it(bench: Bench) -> None:
    """After an hour without a worker, as many begin at once as the bucket holds, the rest at their rate."""
    await bench.submit(keyed("2/m"))
    assert len(await begun(bench)) == 2
    for _ in range(60):
        bench.clock.advance(60_000)
        await bench.shard.claim()
    assert len(await begun(bench)) == 2
    assert await begun(bench) == []
    bench.clock.advance(30_000)
    assert len(await begun(bench)) == 1


async def test_node_task_stopped_while_waiting_for_a_rate_takes_no_token(bench: Bench) -> None:
    await bench.submit(keyed("1/m", names="a b c"))
    assert await begun(bench) == ["a"]
    await bench.shard.terminate("flow:0:0:b", "0", 1, "enough", "ann")
    bench.clock.advance(60_000)
    assert await begun(bench) == ["c"]


async def test_start_timeout_does_not_apply_while_waiting_for_a_key_rate(bench: Bench) -> None:
    rate = KeyRate("k", Rate.parse("1/h"))
    await bench.submit(plan_of("a b", digest="hurried", schedule_to_start_ms=1000, rate=rate))
    assert await begun(bench) == ["a"]
    bench.clock.advance(5_000)
    await bench.shard.reap()
    (waiting,) = await bench.shard.tasks(["flow:0:0:b"])
    assert waiting is not None
    assert waiting.status is NodeTaskStatus.PENDING


async def test_purge_removes_node_tasks_waiting_for_a_rate(bench: Bench) -> None:
    await bench.submit(keyed("1/m", names="a b c"))
    assert await begun(bench) == ["a"]
    while not (await bench.shard.purge("flow")).done:
        pass
    bench.clock.advance(120_000)
    effects = await bench.shard.claim([Vacancy("w1", 0, 10, ("noop",))])
    assert (effects.assignments, effects.due_in) == ((), -1)


async def test_concurrency_limit_and_rate_of_a_node_both_apply(bench: Bench) -> None:
    rate, most = KeyRate("k", Rate.parse("2/m")), Concurrency("k", 1)
    await bench.submit(plan_of("a b c", digest="both", rate=rate, concurrency=most))
    (a,) = await bench.take()
    assert await bench.take() == []
    await bench.complete(a)
    (b,) = await bench.take()
    await bench.complete(b)
    assert await bench.take() == []
    bench.clock.advance(30_000)
    assert len(await bench.take()) == 1
