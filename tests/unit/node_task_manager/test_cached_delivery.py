"""Node tasks whose results may be cached: who runs, who waits, and what happens when caches or workers fail."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from tests.unit.node_task_manager.caching_bench import FLIGHT_MS, SCREENING, CachingBench
from tests.unit.node_task_manager.conftest import running
from tests.waiting import until
from tradewind.node_task_manager.domain.caching import CacheUse
from tradewind.node_task_manager.domain.node_task import NodeTaskStatus, TaskError
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.ports.caches import CacheLookup
from tradewind.node_task_manager.ports.work import OutcomeKind
from tradewind.node_task_manager.use_cases.connected_worker import Offer

COMPLETED, RUNNING, PENDING = NodeTaskStatus.COMPLETED, NodeTaskStatus.RUNNING, NodeTaskStatus.PENDING


@pytest_asyncio.fixture
async def bench() -> AsyncIterator[CachingBench]:
    async with running(CachingBench()) as bench:
        yield bench


async def filled(bench: CachingBench) -> None:
    """Wait until a result has been put in."""
    await until(lambda: bench.notified[-1:] and bench.notified[-1][1], "the result is there")


async def test_repeated_work_is_answered_from_the_cache(bench: CachingBench) -> None:
    worker, line = await bench.connect()
    await bench.run("a", config='{"share": "IBM", "months": 12}')
    await bench.given(line, 1)
    await bench.end(worker, line)
    await filled(bench)
    await bench.run("b", config='{"months":12,"share":"IBM"}')
    await bench.all_are(COMPLETED, "b")
    (task,) = await bench.tasks("b")
    assert (task.cached, task.outputs, task.worker_id) == ("screening", (("out", "1"),), "")
    (ran,) = await bench.tasks("a", of=1)
    assert (ran.cached, ran.outputs, ran.worker_id) == ("", task.outputs, "w1")
    await bench.run("c", config='{"months": 6, "share": "IBM"}')
    await bench.given(line, 2)
    assert worker.room == 9
    assert await bench.counts() == {"hits": 1, "misses": 2, "fills": 1}


async def test_concurrent_equal_node_tasks_run_once_and_waiters_hold_no_room(bench: CachingBench) -> None:
    worker, line = await bench.connect(capacity=20)
    other, its_line = await bench.connect("w2", capacity=20)
    names = [f"n{at}" for at in range(20)]
    await bench.run(*names)

    async def all_wait() -> bool:
        return [task.status for task in await bench.tasks(*names)].count(PENDING) == 19

    await until(all_wait, "nineteen wait")
    await until(lambda: worker.room + other.room == 39, "those that wait keep no room")
    assert len(line.assigned) + len(its_line.assigned) == 1
    busy, its = (worker, line) if line.assigned else (other, its_line)
    await bench.end(busy, its)
    await bench.all_are(COMPLETED, *names)
    tasks = await bench.tasks(*names)
    assert sorted(task.cached for task in tasks) == ["", *["screening"] * 19]
    assert {task.outputs for task in tasks} == {(("out", "1"),)}
    assert len(line.assigned) + len(its_line.assigned) == 1
    assert {task.failures for task in tasks} == {0}
    assert len(bench.caches.waiters) == 0
    counts = await bench.counts()
    assert (counts["hits"], counts["misses"], counts["fills"]) == (19, 1, 1)


async def test_news_of_a_result_may_come_before_the_answer_that_somebody_works_it_out(
    bench: CachingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, line = await bench.connect()
    await bench.run("a")
    await bench.given(line, 1)
    look_up = bench.caches_store.look_up

    async def answered_late(*args: Any) -> CacheLookup:
        answer = await look_up(*args)
        if answer.busy_ms:
            await bench.end(worker, line)
            await filled(bench)
        return answer

    monkeypatch.setattr(bench.caches_store, "look_up", answered_late)
    await bench.run("b")
    await bench.all_are(COMPLETED, "b")
    assert len(line.assigned) == 1
    assert len(bench.caches.waiters) == 0


async def test_failure_is_not_cached_and_a_waiter_runs_next(bench: CachingBench) -> None:
    worker, line = await bench.connect()
    await bench.run("a", "b", "c")
    await bench.given(line, 1)
    broke = TaskError("NODE_ERROR", "broke")
    await bench.end(worker, line, kind=OutcomeKind.FAILED, outputs=(), error=broke)
    await bench.given(line, 2)
    assert line.nodes[0] != line.nodes[1]
    await bench.end(worker, line)
    (last,) = {"a", "b", "c"} - set(line.nodes)
    await bench.all_are(COMPLETED, last)
    (task,) = await bench.tasks(last)
    assert task.cached == "screening"


async def test_another_worker_takes_over_flight_of_lost_worker(bench: CachingBench) -> None:
    worker, line = await bench.connect()
    await bench.run("a", "b")
    await bench.given(line, 1)
    await until(lambda: len(bench.caches.waiters) == 1, "the other one waits")
    successor, its_line = await bench.connect("heir")
    bench.connections.close(worker)

    async def taken_over() -> bool:
        await bench.caches.maintain()
        return bool(its_line.assigned)

    await until(taken_over, "the flight is handed on")
    await bench.end(successor, its_line, 0)
    await bench.all_are(COMPLETED, "a", "b")
    assert len(its_line.assigned) == 1


async def test_a_flight_is_renewed_while_its_attempt_is_held(bench: CachingBench) -> None:
    worker, line = await bench.connect()
    await bench.run("a")
    await bench.given(line, 1)
    for _ in range(4):
        bench.clock.advance(FLIGHT_MS // 3 + 1000)
        await bench.caches.maintain()
    await bench.run("b")
    await until(lambda: len(bench.caches.waiters) == 1, "the other one waits still")
    await bench.end(worker, line)
    await bench.all_are(COMPLETED, "b")


async def test_flights_are_renewed_and_ended_concurrently(bench: CachingBench, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, line = await bench.connect()
    for config in ('{"n": 1}', '{"n": 2}'):
        await bench.run("a", config=config)
    await bench.given(line, 2)
    extend, together = bench.caches_store.extend, asyncio.Barrier(2)

    async def extended(*args: Any) -> bool:
        await together.wait()
        return await extend(*args)

    monkeypatch.setattr(bench.caches_store, "extend", extended)
    bench.clock.advance(FLIGHT_MS // 3 + 1000)
    await asyncio.wait_for(bench.caches.maintain(), 5)
    bench.caches_store.full = True
    for at in range(2):
        await bench.end(worker, line, at)
    await until(lambda: len(bench.notified) == 2, "both were tried")
    bench.clock.advance(1000)
    await asyncio.wait_for(bench.caches.maintain(), 5)


async def test_unavailable_cache_is_bypassed_and_not_retried_at_once(bench: CachingBench) -> None:
    worker, line = await bench.connect()
    bench.caches_store.away = True
    await bench.run("a")
    await bench.given(line, 1)
    await bench.end(worker, line)
    await bench.all_are(COMPLETED, "a")
    for count in (2, 3):
        await bench.run("b")
        await bench.given(line, count)
    # After the first failure nobody waits for another one.
    assert bench.caches_store.calls == ["look_up"]
    bench.caches_store.away = False
    assert await bench.counts() == {"bypassed": 3}


async def test_failed_cache_fill_does_not_block_the_next_run(bench: CachingBench) -> None:
    worker, line = await bench.connect()
    await bench.run("a")
    await bench.given(line, 1)
    bench.caches_store.full = True
    await bench.end(worker, line)
    await until(lambda: bench.notified, "it was tried")
    bench.caches_store.full = False
    bench.clock.advance(1000)
    await bench.caches.maintain()
    await bench.run("b")
    await bench.given(line, 2)


async def hangs(*_args: object) -> CacheLookup:
    await asyncio.Event().wait()
    raise AssertionError


async def test_hanging_cache_delays_assignment_only_briefly(
    bench: CachingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.caches._timeout_s = 0.01

    monkeypatch.setattr(bench.caches_store, "look_up", hangs)
    _, line = await bench.connect()
    await bench.run("a")
    await bench.given(line, 1)


@pytest.mark.parametrize("clock", [{"heartbeat_ms": 100}, {"start_to_close_ms": 100}], ids=str)
async def test_hanging_cache_leaves_half_of_its_clocks_to_an_attempt(
    bench: CachingBench, monkeypatch: pytest.MonkeyPatch, clock: dict[str, Any]
) -> None:
    bench.caches._timeout_s = 60

    monkeypatch.setattr(bench.caches_store, "look_up", hangs)
    _, line = await bench.connect()
    await bench.run("a", **clock)
    await bench.given(line, 1)


async def test_node_without_cache_makes_no_cache_calls(bench: CachingBench) -> None:
    worker, line = await bench.connect()
    await bench.run("a", use=None)
    await bench.given(line, 1)
    await bench.end(worker, line)
    await bench.all_are(COMPLETED, "a")
    await bench.caches.maintain()
    assert (bench.caches_store.calls, bench.notified) == ([], [])


async def test_disabled_or_unknown_cache_is_bypassed(bench: CachingBench) -> None:
    worker, line = await bench.connect()
    bench.config = SystemConfig(enable_cache=False)
    await bench.run("a")
    await bench.given(line, 1)
    bench.config = SystemConfig()
    await bench.run("b", use=CacheUse("forgotten"))
    await bench.given(line, 2)
    assert bench.caches_store.calls == []
    await bench.end(worker, line)


async def test_oversize_outputs_are_not_cached_and_do_not_block_waiters(bench: CachingBench) -> None:
    worker, line = await bench.connect()
    await bench.run("a", "b")
    await bench.given(line, 1)
    large = '"' + "x" * 256 * 1024 + '"'
    await bench.end(worker, line, outputs=(("out", large),))
    await bench.given(line, 2)
    await bench.end(worker, line)
    await bench.all_are(COMPLETED, "a", "b")
    await until(lambda: not bench.caches.flights, "both have ended")
    assert (await bench.counts())["oversize"] == 1


async def test_node_task_waiting_for_cached_result_can_be_stopped(bench: CachingBench) -> None:
    worker, line = await bench.connect()
    await bench.run("a", "b")
    await bench.given(line, 1)
    (waiting,) = {"a", "b"} - set(line.nodes)
    await bench.all_are(PENDING, waiting)
    await bench.store.terminate(f"f1:0:0:{waiting}", "0", "ab".index(waiting), "enough", "ann")
    await bench.all_are(NodeTaskStatus.SKIPPED, waiting)
    await bench.end(worker, line)
    await filled(bench)
    assert [task.status for task in await bench.tasks(waiting)] == [NodeTaskStatus.SKIPPED]


async def test_message_from_another_replica_wakes_waiters(bench: CachingBench) -> None:
    """Another replica puts in the result here; this one only hears its message."""
    _, line = await bench.connect()
    await bench.run("a", use=replace(SCREENING, key="k"))
    await bench.given(line, 1)
    await bench.run("b", use=replace(SCREENING, key="k"))
    await bench.all_are(PENDING, "b")
    (entry,) = bench.caches_store._flights
    flight = bench.caches_store._flights[entry]
    await bench.caches_store.fill(entry, flight.value, flight.generation, '[["out","7"]]', 60_000, 10)
    bench.caches.flights.settled_elsewhere(entry, filled=True)
    await bench.all_are(COMPLETED, "b")
    (task,) = await bench.tasks("b")
    assert task.outputs == (("out", "7"),)


async def test_worker_offer_sets_cache_and_version_of_node_type(bench: CachingBench) -> None:
    """Its cache is used for nodes that name none, and its version, so that results of other versions are not taken."""
    worker, line = await bench.connect()
    worker.offers = {"noop": Offer("1", SCREENING)}
    await bench.run("a", use=None)
    await bench.given(line, 1)
    await bench.end(worker, line)
    await filled(bench)
    await bench.run("b", use=None)
    await bench.all_are(COMPLETED, "b")
    worker.offers = {"noop": Offer("2", SCREENING)}
    await bench.run("c", use=None)
    await bench.given(line, 2)


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        (SCREENING, SCREENING, True),
        (SCREENING, replace(SCREENING, name="analysis"), False),
        (replace(SCREENING, key="k"), replace(SCREENING, key="k"), True),
        (replace(SCREENING, key="k"), replace(SCREENING, key="l"), False),
    ],
)
async def test_result_is_shared_only_for_same_cache_and_key(
    bench: CachingBench, first: CacheUse, second: CacheUse, shared: bool
) -> None:
    worker, line = await bench.connect()
    config = ('{"x":1}', '{"x":2}') if first.key else ('{"x":1}', '{"x":1}')
    await bench.run("a", use=first, config=config[0])
    await bench.given(line, 1)
    await bench.end(worker, line)
    await filled(bench)
    await bench.run("b", use=second, config=config[1])
    if shared:
        await bench.all_are(COMPLETED, "b")
    else:
        await bench.given(line, 2)


async def test_node_task_stopped_while_it_is_looked_up_never_begins(
    bench: CachingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, line = await bench.connect()
    look_up, asked, answer = bench.caches_store.look_up, asyncio.Event(), asyncio.Event()

    async def answered_late(*args: Any) -> CacheLookup:
        asked.set()
        await answer.wait()
        return await look_up(*args)

    monkeypatch.setattr(bench.caches_store, "look_up", answered_late)
    await bench.run("a")
    await asked.wait()
    bench.dispatcher.apply(await bench.store.terminate("f1:0:0:a", "0", 0, "enough", "ann"))
    await bench.all_are(NodeTaskStatus.TERMINATED, "a")
    answer.set()
    await bench.run("b", use=None)
    await bench.given(line, 1)
    assert (line.nodes, line.terminated, worker.room) == (["b"], [], 9)
