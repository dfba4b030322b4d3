"""What a shard does for called workers."""

import pytest

from tests.servers import RedisServer
from tests.stores.node_task_manager.shards import LIMITS, Bench, plan_of, task_of
from tradewind.node_task_manager.domain.node_task import NodeTaskStatus
from tradewind.node_task_manager.ports.reading import Progress
from tradewind.node_task_manager.ports.work import Assignment, Held, Vacancy
from tradewind.node_task_manager.ports.workers import Replicas
from tradewind.node_task_manager.stores.keys import Keys
from tradewind.node_task_manager.stores.memory.replicas import MemoryReplicas
from tradewind.node_task_manager.stores.redis_replicas import RedisReplicas
from tradewind.server.clock import ManualClock


def held(assignment: Assignment) -> Held:
    return Held(assignment.task_id, assignment.attempt, assignment.nonce)


async def test_least_loaded_worker_gets_the_node_task(bench: Bench) -> None:
    await bench.submit(plan_of("a b c"))
    half = Vacancy("half", 0, 5, ("noop",), capacity=10)
    idle = Vacancy("idle", 0, 1, ("noop",), capacity=1)
    effects = await bench.shard.claim([half, idle])
    assert [each.worker_id for each in effects.assignments] == ["idle", "half", "half"]


async def test_passing_on_keeps_the_attempt_and_restarts_its_clocks(bench: Bench) -> None:
    await bench.submit(plan_of("a", start_to_close_ms=60_000))
    (first,) = await bench.take(1, "w1")
    bench.clock.advance(5_000)
    await bench.shard.record([Progress(first.task_id, first.nonce, 40, "at 40")], [])
    (second,) = (await bench.shard.pass_on("w1", held(first), "w2")).assignments
    passed = await task_of(bench)
    assert (passed.progress, passed.message) == (0, ""), "the second worker begins it anew"
    assert (second.worker_id, second.task_id, second.attempt) == ("w2", first.task_id, 1)
    assert second.nonce != first.nonce
    assert second.deadline_ms == first.deadline_ms + 5_000
    assert await bench.shard.held_by("w1") == []
    assert await bench.shard.held_by("w2") == [first.task_id]
    # If the first worker took it after all, its reports do not count.
    assert (await bench.complete(first)).startswith("the lease lapsed")
    bench.clock.advance(LIMITS.lease_ms - 1)
    assert (await bench.shard.reap()).results == ()
    assert await bench.complete(second) == ""


async def test_node_task_that_is_not_held_or_is_stopping_is_not_passed_on(bench: Bench) -> None:
    await bench.submit(plan_of("a"))
    (taken,) = await bench.take(1, "w1")
    assert (await bench.shard.pass_on("w3", held(taken), "w2")).assignments == ()
    assert (await bench.shard.pass_on("w1", Held(taken.task_id, 1, "other"), "w2")).assignments == ()
    await bench.shard.terminate(taken.task_id, "0", 0, "enough", "ann")
    assert (await bench.shard.pass_on("w1", held(taken), "w2")).assignments == ()
    assert await bench.shard.held_by("w1") == [taken.task_id]


async def test_new_worker_process_loses_the_node_tasks_of_the_previous_one(bench: Bench) -> None:
    await bench.shard.begin_process("w1", "i1")
    await bench.submit(plan_of("a"))
    (taken,) = await bench.take(1, "w1")
    await bench.shard.begin_process("w1", "i1")
    assert await bench.shard.held_by("w1") == [taken.task_id]

    effects = await bench.shard.begin_process("w1", "i2")
    assert effects.ready_types == ()
    assert await bench.shard.held_by("w1") == []
    (task,) = await bench.shard.tasks([taken.task_id])
    assert task is not None
    assert (task.status, task.lost) == (NodeTaskStatus.PENDING, 1)


async def test_first_known_worker_process_keeps_the_held_node_tasks(bench: Bench) -> None:
    """Nobody can tell whether it is another process."""
    await bench.submit(plan_of("a"))
    (taken,) = await bench.take(1, "w1")
    await bench.shard.begin_process("w1", "i1")
    assert await bench.shard.held_by("w1") == [taken.task_id]


async def test_new_worker_process_loses_1100_node_tasks(bench: Bench) -> None:
    await bench.shard.begin_process("w1", "i1")
    await bench.submit(plan_of(" ".join(f"n{at}" for at in range(1100))))
    while await bench.take(500, "w1"):
        pass
    assert len(await bench.shard.held_by("w1")) == 1100
    await bench.shard.begin_process("w1", "i2")
    assert await bench.shard.held_by("w1") == []


@pytest.fixture
def replicas(store: RedisServer | None, clock: ManualClock) -> Replicas:
    """No replicas yet."""
    if store is None:
        return MemoryReplicas(clock)
    return RedisReplicas(store.connect("node_task_manager"), Keys("trading_flow", 0), clock)


async def test_replicas_are_listed_until_they_leave_or_time_out(replicas: Replicas, clock: ManualClock) -> None:
    assert list(await replicas.check_in("a", 1000)) == ["a"]
    clock.advance(600)
    assert sorted(await replicas.check_in("b", 1000)) == ["a", "b"]
    clock.advance(600)
    assert list(await replicas.check_in("b", 1000)) == ["b"]
    assert sorted(await replicas.check_in("a", 1000)) == ["a", "b"]
    await replicas.leave("b")
    assert list(await replicas.check_in("a", 1000)) == ["a"]
