"""Twenty claimers at once on a real store: limits hold at every moment, and users' shares follow their weights."""

import asyncio
import random
from collections import Counter

import pytest

from tests.servers import RedisServer, RedisServers, redis_kinds
from tests.stores.node_task_manager.invariants import check_invariants
from tests.stores.node_task_manager.raw_keys import read_keys
from tests.stores.node_task_manager.shards import Bench, RedisShard, memory_shard, redis_shard
from tradewind.node_task_manager.domain.component import RunSubmission
from tradewind.node_task_manager.domain.concurrency import Concurrency
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.plan import Plan, PlanNode
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.ports.work import Assignment, Held, Outcome, OutcomeKind, Vacancy
from tradewind.server.clock import ManualClock

CONFIG = SystemConfig(
    max_running=12, max_running_per_user=6, max_running_per_node_type={"t1": 5}, max_running_per_flow=4, version=1
)
BOUNDS = {"running": 12, "user:ann": 6, "user:bob": 6, "type:t1": 5, "flow:f": 4, "flow:g": 3}
BOUNDS |= {"key:ann:k": 2, "key:bob:k": 2}
WORKERS, NODES = 20, 60


@pytest.fixture
def server(request: pytest.FixtureRequest, redis_servers: RedisServers) -> RedisServer:
    return redis_servers.get(request.param)


def _plan(flow: str) -> Plan:
    nodes = tuple(
        PlanNode(
            f"n{at}",
            "t1" if at % 2 else "t2",
            concurrency=Concurrency("k", 2) if at % 3 == 0 else None,
            priority=at % 4,
        )
        for at in range(NODES)
    )
    return Plan(f"plan of {flow}", nodes, (), max_running=3 if flow == "g" else 0)


@pytest.mark.parametrize("server", redis_kinds(), indirect=True)
@pytest.mark.parametrize("records", [500, 3], ids=["whole", "cut"])
async def test_twenty_claimers_exceed_no_limit(server: RedisServer, records: int) -> None:
    await server.flush()
    shard = redis_shard(server, ManualClock(), Limits(records_per_script=records))
    await shard.save_config(CONFIG)
    shard.configure(CONFIG)
    for flow, user in (("f", "ann"), ("g", "bob"), ("h", "bob")):
        await shard.save(_plan(flow))
        run = RunSubmission(RunName(flow, 0, 0), "r0", user, (("0", f"plan of {flow}"),), 0)
        await shard.submit([run])
    ended: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    over = asyncio.Event()

    async def watch_bounds() -> None:
        while not over.is_set():
            names = list(BOUNDS)
            for name, held in zip(names, await shard.held(names), strict=True):
                assert held <= BOUNDS[name], name
                seen[name] = max(seen[name], held)

    async def work(number: int) -> None:
        rng, vacancy = random.Random(number), Vacancy(f"w{number}", 0, 3, ("t1", "t2"))
        mine: list[Assignment] = []
        while sum(ended.values()) < 3 * NODES:
            effects = await shard.claim([vacancy])
            mine += effects.assignments
            rng.shuffle(mine)
            done, mine = mine[: len(mine) // 2 + 1], mine[len(mine) // 2 + 1 :]
            if rng.random() < 0.1 and done:
                held = [Held(each.task_id, each.attempt, each.nonce) for each in done + mine]
                await shard.give_back(f"w{number}", 0, held)
                mine = []
            elif done:
                outcomes = [Outcome(each.task_id, each.attempt, each.nonce, OutcomeKind.COMPLETED) for each in done]
                effects = await shard.complete(outcomes, [vacancy])
                ended.update(each.task_id for each, lost in zip(done, effects.results, strict=False) if not lost)
                mine += effects.assignments

    watching = asyncio.create_task(watch_bounds())
    try:
        async with asyncio.timeout(240):
            await asyncio.gather(*(work(number) for number in range(WORKERS)))
    finally:
        over.set()
        await watching
    assert set(ended.values()) == {1}, "each node task ends once"
    assert seen["running"] > 3, "several ran at once"
    while (await shard.claim()).todo:
        pass
    await check_invariants(server)
    keys = await read_keys(server)
    assert not [name for name in keys.sets if name.startswith(("slots:", "blocked", "parked"))]
    await server.close_clients()


async def test_node_types_that_many_workers_offer_are_sent_to_the_store_once(redis_server: RedisServer) -> None:
    shard, admin = redis_shard(redis_server, ManualClock()), redis_server.connect()
    node_types = tuple(f"node-type-{number:03}" for number in range(200))

    async def bytes_of_claim(workers: int) -> int:
        before = (await admin.info("stats"))["total_net_input_bytes"]
        await shard.claim([Vacancy(f"w{number}", 0, 5, node_types, 10) for number in range(workers)])
        return int((await admin.info("stats"))["total_net_input_bytes"] - before)

    await bytes_of_claim(1)
    assert await bytes_of_claim(32) - await bytes_of_claim(1) < 32 * 100


@pytest.mark.parametrize("kind", ["memory", "embedded"])
async def test_shares_follow_weights(kind: str, embedded: RedisServer) -> None:
    clock, server = ManualClock(), embedded
    config = SystemConfig(user_weights={"ann": 3.0, "cid": 0.5}, version=1)
    if kind == "memory":
        bench = Bench(memory_shard(clock), clock)
    else:
        await server.flush()
        shard: RedisShard = redis_shard(server, clock)
        await shard.save_config(config)
        bench = Bench(shard, clock)
    bench.shard.configure(config)
    plan = Plan("many", tuple(PlanNode(f"n{at}", "noop") for at in range(400)), ())
    for user in ("ann", "bob", "cid"):
        await bench.submit(plan, flow_id=user, user_id=user)
    taken: Counter[str] = Counter()
    for _ in range(9):
        taken.update(each.user_id for each in await bench.take(20))
    assert taken["ann"] == pytest.approx(120, abs=3)
    assert taken["bob"] == pytest.approx(40, abs=3)
    assert taken["cid"] == pytest.approx(20, abs=3)
    await server.close_clients()
