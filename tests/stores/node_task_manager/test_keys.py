"""The keys in Redis and their TTLs, and what is left of ended runs."""

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.servers import RedisServer, assert_no_leaked_keys
from tests.stores.node_task_manager.invariants import expire_all
from tests.stores.node_task_manager.raw_keys import read_keys
from tests.stores.node_task_manager.shards import LIMITS, Bench, completed, plan_of, redis_shard
from tests.waiting import until
from tradewind.node_task_manager.domain.component import RunSubmission
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.ports.reading import Line
from tradewind.server.clock import ManualClock
from tradewind.server.redis.subscriber import Subscriber

BASE = "trading_flow:{s0}:"
DAY = 24 * 3600 * 1000
RUN = RunName("flow", 0, 0)
INDEXES = tuple(
    f"{BASE}{name}" for name in ("node_tasks_list", "flow_runs:*", "to_clean", "events:*", "last_events", "queue:stats")
)
"""Keys that may stay because they are cleaned up or await acknowledgement."""


@pytest.fixture
def bench(redis_server: RedisServer) -> Bench:
    clock = ManualClock()
    return Bench(redis_shard(redis_server, clock), clock)


async def ttl_of(server: RedisServer, name: str) -> int:
    """Return the TTL of a key in ms, -1 for none, -2 for a missing key."""
    return await server.connect().pttl(BASE + name)


async def finish_all(bench: Bench) -> None:
    while taken := await bench.take():
        for assignment in taken:
            await bench.complete(assignment, out="1")


async def test_open_run_has_no_ttl_and_ended_run_has_one_of_a_day(bench: Bench, redis_server: RedisServer) -> None:
    await bench.submit(plan_of("a>b"))
    (a,) = await bench.take()
    for name in ("run:flow:0:0", "plan:a>b/skip_downstream"):
        assert await ttl_of(redis_server, name) == -1, name
    await bench.complete(a, out="1")
    # A node that ended long before its run is kept as long as the run.
    assert await ttl_of(redis_server, "run:flow:0:0") == -1
    await finish_all(bench)
    assert DAY - 10_000 < await ttl_of(redis_server, "run:flow:0:0") <= DAY
    await assert_no_leaked_keys(redis_server, INDEXES)


async def test_ended_run_of_1200_nodes_expires_as_a_whole(bench: Bench, redis_server: RedisServer) -> None:
    await bench.submit(plan_of(" ".join(f"n{number}" for number in range(1200))))
    effects = await bench.shard.claim()
    while effects.todo:
        effects = await bench.shard.claim()
    while taken := await bench.take(500):
        for first in range(0, len(taken), 100):
            await bench.shard.complete([completed(each) for each in taken[first : first + 100]])
    effects = await bench.shard.claim()
    while effects.todo:
        effects = await bench.shard.claim()
    assert [key for key in await redis_server.keys_without_ttl() if ":run:" in key] == []
    assert len((await read_keys(redis_server)).tasks) == 1200


async def test_ended_runs_are_removed_from_indexes(bench: Bench, redis_server: RedisServer) -> None:
    admin = redis_server.connect()
    for cycle in range(3):
        await bench.submit(plan_of("a>b"), cycle=cycle)
        await finish_all(bench)
    assert await admin.zcard(BASE + "start_deadlines") == 0
    bench.clock.advance(DAY + 1)
    await bench.submit(plan_of("a>b"), cycle=3, run_id="r3")
    await expire_all(redis_server)
    while (await bench.shard.clean("c", 0)).more:
        pass
    assert await admin.zrange(BASE + "flow_runs:flow", 0, -1) == [b"3:0"]


async def test_stop_mark_has_the_requested_ttl(bench: Bench, redis_server: RedisServer) -> None:
    await bench.shard.stop(RUN, "r0", "", "enough", "ann", 5_000_000)
    await bench.shard.stop(RUN, "r0", "1", "enough", "ann", 7_000_000)
    assert 4_990_000 < await ttl_of(redis_server, "stop:flow:0:0") <= 5_000_000
    assert 6_990_000 < await ttl_of(redis_server, "stop:flow:0:0:1") <= 7_000_000


async def test_purge_tombstone_and_later_stop_marks_expire_after_an_hour(
    bench: Bench, redis_server: RedisServer
) -> None:
    await bench.submit(plan_of("a>b"))
    (a,) = await bench.take()
    await bench.shard.record([], [Line(a.task_id, a.attempt, a.nonce, "INFO", "node", "hello", 1)])
    await bench.shard.stop(RUN, "r0", "", "enough", "ann", 5_000_000)
    while not (await bench.shard.purge("flow")).done:
        pass
    assert [key for key in await redis_server.keys() if ":flow" in key] == [f"{BASE}purged:flow"]
    assert 3_590_000 < await ttl_of(redis_server, "purged:flow") <= 3_600_000
    await bench.shard.stop(RUN, "r0", "", "late", "ann", 5_000_000)
    assert 3_590_000 < await ttl_of(redis_server, "stop:flow:0:0") <= 3_600_000


async def test_logs_plans_and_sessions_expire(bench: Bench, redis_server: RedisServer) -> None:
    plan = plan_of("a", digest="p")
    await bench.submit(plan)
    (a,) = await bench.take()
    # Saving it again while it is in use does not give it a time to live.
    await bench.shard.save(plan)
    assert await ttl_of(redis_server, "plan:p") == -1
    await bench.shard.record([], [Line(a.task_id, a.attempt, a.nonce, "INFO", "node", "hello", 1)])
    await bench.complete(a)
    await bench.shard.open_session("w1", "i1", [])
    expected = {
        "plan:p": LIMITS.plan_retention_ms,
        "logs:flow:0": LIMITS.run_retention_ms,
        "flow_logs:flow": LIMITS.run_retention_ms,
        "worker_session:w1": LIMITS.run_retention_ms,
        "worker_incarnation:w1": LIMITS.run_retention_ms,
    }
    for name, most in expected.items():
        assert most - 10_000 < await ttl_of(redis_server, name) <= most, name


async def test_node_task_that_no_worker_asked_for_leaves_no_index(bench: Bench, redis_server: RedisServer) -> None:
    await bench.submit(plan_of("a>b", schedule_to_start_ms=1000))
    bench.clock.advance(1000)
    assert (await bench.shard.reap()).results == ("flow:0:0:a",)
    await assert_no_leaked_keys(redis_server, INDEXES)


async def test_claim_removes_the_start_deadline(bench: Bench, redis_server: RedisServer) -> None:
    await bench.submit(plan_of("a b"))
    assert await redis_server.connect().zcard(f"{BASE}start_deadlines") == 2
    await bench.take(1)
    assert await redis_server.connect().zcard(f"{BASE}start_deadlines") == 1


async def test_run_has_no_ttl_while_one_of_its_components_is_open(bench: Bench, redis_server: RedisServer) -> None:
    for plan in (short := plan_of("a"), long := plan_of("b")):
        await bench.shard.save(plan)
    parts = (("0", short.digest), ("1", long.digest))
    await bench.shard.submit([RunSubmission(RUN, "r0", "default", parts, 3)])
    a, b = await bench.take()
    await bench.complete(a)
    assert await ttl_of(redis_server, "run:flow:0:0") == -1
    await bench.complete(b)
    await assert_no_leaked_keys(redis_server, INDEXES)


async def test_work_left_by_a_purged_run_does_not_affect_its_namesake(bench: Bench, redis_server: RedisServer) -> None:
    plan = plan_of(" ".join(f"n{number}" for number in range(1200)), digest="wide")
    await bench.submit(plan)
    assert (await bench.shard.stop(RUN, "r0", "", "enough", "ann", 5_000_000)).todo
    while not (await bench.shard.purge("flow")).done:
        pass
    bench.clock.advance(1)
    assert await bench.submit(plan, run_id="r1") == "accepted"
    while (await bench.shard.claim()).todo:
        pass
    (component,) = await bench.shard.components([(RUN, "0")])
    assert component is not None
    assert (component.run_id, component.open, component.stop) == ("r1", 1200, None)


@pytest_asyncio.fixture
async def wakes(redis_server: RedisServer) -> AsyncIterator[list[bytes]]:
    """What other processes are notified of, as it comes."""
    received: list[bytes] = []
    subscriber = Subscriber(redis_server.url("node_task_manager"))
    subscriber.start()
    await subscriber.subscribe(f"{BASE}wake", lambda _, message: received.append(message))
    yield received
    await subscriber.stop()


async def test_ready_node_task_without_start_timeout_wakes_other_processes(bench: Bench, wakes: list[bytes]) -> None:
    cycles = itertools.count()

    async def notified() -> bool:
        # The nodes of a cluster sometimes link anew, and messages sent meanwhile are lost, so try again.
        await bench.submit(plan_of("a", schedule_to_start_ms=0), cycle=next(cycles))
        await asyncio.sleep(0.05)
        return b"noop" in wakes

    await until(notified, "others are notified of the node type")


@pytest.mark.parametrize("how", ["completed", "purged"])
@pytest.mark.parametrize(
    "config",
    [
        SystemConfig(max_running=1),
        SystemConfig(max_running_per_node_type={"noop": 1}),
        SystemConfig(max_running_per_user=1),
    ],
    ids=["all", "type", "user"],
)
async def test_room_under_a_limit_wakes_other_processes(
    bench: Bench, wakes: list[bytes], config: SystemConfig, how: str
) -> None:
    bench.shard.configure(config)
    await bench.submit(plan_of("waits"), flow_id="waits")
    cycles = itertools.count()

    async def notified() -> bool:
        await bench.submit(plan_of("runs", priority=5), cycle=next(cycles))
        (given,) = await bench.take()
        await asyncio.sleep(0.05)
        wakes.clear()
        if how == "completed":
            await bench.complete(given)
        else:
            await bench.shard.purge("flow")
            bench.clock.advance(1)
        await asyncio.sleep(0.05)
        return b"noop" in wakes

    await until(notified, "others are notified that more of the node type may run")


async def test_state_of_a_node_task_is_in_one_field(bench: Bench, redis_server: RedisServer) -> None:
    await bench.submit(plan_of("a"))
    await bench.take()
    fields = await redis_server.connect().hgetall(f"{BASE}run:flow:0:0")
    assert {name for name in fields if name.startswith(b"a:")} == {b"a:state"}
    (task,) = (await read_keys(redis_server)).tasks.values()
    now = str(bench.clock())
    assert (task["status"], task["worker_id"], task["attempt"]) == ("running", "w1", "1")
    assert [task[name] for name in ("registered_at", "ready_at", "started_at")] == [now] * 3


async def test_a_component_that_has_only_begun_has_no_state(bench: Bench, redis_server: RedisServer) -> None:
    async def fields() -> set[bytes]:
        return {name for name in await redis_server.connect().hgetall(f"{BASE}run:flow:0:0") if b"/" in name}

    await bench.submit(plan_of("a"))
    (taken,) = await bench.take()
    assert await fields() == {b"0/facts"}
    bench.clock.advance(7)
    await bench.complete(taken)
    assert await fields() == {b"0/facts", b"0/state"}
    (component,) = (await read_keys(redis_server)).components.values()
    assert (component["status"], component["completed"], component["sinks"]) == ("finished", "1", "1")
    assert component["finished_at"] == str(bench.clock())


async def test_only_input_of_a_node_has_its_own_field(bench: Bench, redis_server: RedisServer) -> None:
    """The input is read together with the record, so that a claim reads only once."""
    plan = plan_of("a>b b>c a>c")
    await bench.shard.save(plan)
    await bench.submit(plan)
    (a,) = await bench.take()
    await bench.complete(a, out="1")
    (b,) = await bench.take()
    await bench.complete(b, out="2")
    (c,) = await bench.take()
    assert [given.inputs for given in (b, c)] == [((0, "1"),), ((1, "2"), (2, "1"))]
    tasks = await bench.shard.tasks([b.task_id, c.task_id], inputs=True)
    assert [task and task.inputs for task in tasks] == [((0, "1"),), ((1, "2"), (2, "1"))]
    fields = set(await redis_server.connect().hgetall(f"{BASE}run:flow:0:0"))
    assert {b"b:input", b"c:in:1", b"c:in:2"} <= fields
    assert b"b:in:0" not in fields
