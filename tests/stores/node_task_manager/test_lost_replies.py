"""Many claimers at once, and connections that break in the middle of calls: nothing is given twice or stranded."""

import asyncio
import random
from collections import Counter

import pytest
from redis.exceptions import RedisClusterException, RedisError

from tests.servers import RedisServer
from tests.stores.node_task_manager.invariants import check_invariants
from tests.stores.node_task_manager.shards import Bench, RedisShard, ShardStores, plan_of, redis_shard
from tradewind.node_task_manager.domain.component import ComponentStatus, RunSubmission
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.ports.work import Assignment, Held, Outcome, OutcomeKind, Vacancy
from tradewind.server.clock import ManualClock
from tradewind.server.redis.acl import ADMIN
from tradewind.server.redis.client import connect

CLAIMERS = 20
NODE_TASKS = 1000


@pytest.fixture
def bench(redis_server: RedisServer) -> Bench:
    clock = ManualClock()
    return Bench(redis_shard(redis_server, clock), clock)


async def test_twenty_claimers_at_once_take_each_of_a_thousand_node_tasks_once(
    bench: Bench, redis_server: RedisServer
) -> None:
    for run in range(10):
        plan = plan_of(" ".join(f"n{number}" for number in range(NODE_TASKS // 10)), digest="wide")
        await bench.submit(plan, flow_id=f"flow{run}", user_id=f"user{run % 3}")

    async def claim_all(number: int) -> list[Assignment]:
        taken: list[Assignment] = []
        while True:
            some = await bench.take(random.Random(number).randint(1, 7), f"w{number}")
            if not some:
                return taken
            taken += some

    shares = await asyncio.gather(*map(claim_all, range(CLAIMERS)))
    taken = [assignment for share in shares for assignment in share]
    assert max(Counter(each.task_id for each in taken).values()) == 1
    assert (len(taken), len({each.nonce for each in taken})) == (NODE_TASKS, NODE_TASKS)
    assert sum(bool(share) for share in shares) > 1
    await check_invariants(redis_server)


class Worker:
    """A worker whose process does not learn what was in the replies that were lost."""

    def __init__(self, shard: ShardStores, name: str) -> None:
        self.shard = shard
        self.name = name
        self.session = 0
        self.held: dict[str, Assignment] = {}
        self.broken = 0

    async def open(self) -> None:
        """Open a session that names what the worker holds."""
        session = await self.shard.open_session(self.name, "i1", [_held(each) for each in self.held.values()])
        self.session = session.session
        for nonce in session.lost:
            del self.held[nonce]

    async def work(self) -> None:
        """Complete what the worker holds and claim more; after an error it reconnects."""
        try:
            if not self.session:
                await self.open()
            outcomes = [
                Outcome(each.task_id, each.attempt, each.nonce, OutcomeKind.COMPLETED, (("out", "1"),))
                for each in self.held.values()
            ]
            effects = await self.shard.complete(outcomes, [Vacancy(self.name, self.session, 5, ("noop",))])
            self.held = {each.nonce: each for each in effects.assignments}
        except (RedisError, RedisClusterException, OSError):
            self.broken += 1
            self.session = 0


async def test_assignments_lost_with_broken_connections_are_sent_again(bench: Bench, redis_server: RedisServer) -> None:
    """No lease lapses meanwhile: the clock stands still."""
    plan = plan_of("a>b a>c a>d b>e c>e d>e e>f")
    await bench.shard.save(plan)
    part = (("0", plan.digest),)
    observer = RedisShard(redis_server.connect(), bench.clock)
    workers = [Worker(redis_shard(redis_server, bench.clock), f"w{number}") for number in range(4)]
    # These stay connected, because the workers' calls take less time than a login.
    cutters = [connect(node.url_for(ADMIN), max_connections=1) for node in redis_server.nodes]
    runs: list[RunSubmission] = []
    chance = random.Random(7)
    while sum(worker.broken for worker in workers) < 4:
        more = [
            RunSubmission(RunName("flow", cycle, 0), f"r{cycle}", "default", part, 3)
            for cycle in range(len(runs), len(runs) + 40)
        ]
        runs += more
        await bench.shard.submit(more)
        names = [(run.run, "0") for run in more]
        turns = 0
        while not all(each and each.status is ComponentStatus.FINISHED for each in await observer.components(names)):
            turns += 1
            assert turns < 1000, "node tasks were stranded"
            calls = [asyncio.create_task(worker.work()) for worker in workers]
            if chance.random() < 0.5:
                # Cut connections in the middle of calls: some calls were carried out, but their replies are lost.
                for _ in range(chance.randint(0, 20)):
                    await asyncio.sleep(0)
                kill = ("CLIENT", "KILL", "USER", "node_task_manager")
                await asyncio.gather(*(cutter.execute_command(*kill) for cutter in cutters))
            await asyncio.gather(*calls)
    for cutter in cutters:
        await cutter.end()
    records = await observer.tasks([run.run.task_id(node.node_id) for run in runs for node in plan.nodes])
    assert {record.lost for record in records if record} == {0}
    await check_invariants(redis_server)


async def test_renewing_resends_the_assignments_of_a_lost_claim(bench: Bench, redis_server: RedisServer) -> None:
    plan = plan_of("a b c")
    await bench.submit(plan)
    session = (await bench.shard.open_session("w1", "i1", [])).session
    lost = (await bench.shard.claim([Vacancy("w1", session, 3, ("noop",))])).assignments
    assert (await bench.shard.renew("w1", session, [])).effects.assignments == ()
    bench.clock.advance(2000)
    again = await bench.shard.renew("w1", session, [])
    assert again.effects.assignments == lost
    assert (await bench.shard.renew("w1", session, [_held(each) for each in lost])).effects.assignments == ()


async def test_1700_leases_are_renewed_kept_and_given_back(bench: Bench, redis_server: RedisServer) -> None:
    await bench.submit(plan_of(" ".join(f"n{number}" for number in range(1700)), digest="wide"))
    session = (await bench.shard.open_session("w1", "i1", [])).session
    taken: list[Assignment] = []
    while len(taken) < 1700:
        taken += (await bench.shard.claim([Vacancy("w1", session, 10_000, ("noop",))])).assignments
    bench.clock.advance(3000)
    named = [_held(each) for each in taken[:1200]]
    renewal = await bench.shard.renew("w1", session, [*named, Held("flow:0:0:n0", 1, "nobody")])
    assert renewal.lost == (("nobody", "the lease lapsed"),)
    # One script gives that many again; the rest comes with the next message.
    assert {each.task_id for each in renewal.effects.assignments} == {each.task_id for each in taken[1200:]}
    opened = await bench.shard.open_session("w1", "i2", [*named, Held("flow:0:0:n0", 1, "nobody")])
    assert opened.lost == ("nobody",)
    assert set(await bench.shard.held_by("w1")) == {each.task_id for each in named}
    (kept, given) = await bench.shard.tasks([taken[0].task_id, taken[-1].task_id])
    assert kept is not None
    assert given is not None
    assert (kept.lease_deadline, kept.lost, given.lost) == (bench.clock() + 30_000, 0, 1)
    assert (await bench.shard.give_back("w1", session, None)).results == ("replaced",)
    assert (await bench.shard.give_back("w1", opened.session, None)).results == ("given_back",)
    assert await bench.shard.held_by("w1") == []
    await check_invariants(redis_server)


def _held(given: Assignment) -> Held:
    return Held(given.task_id, given.attempt, given.nonce)
