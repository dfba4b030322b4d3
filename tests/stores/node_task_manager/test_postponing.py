"""Node tasks that wait for another one's result: taken back without harm, and ready again in time."""

from msgspec import structs

from tests.stores.node_task_manager.shards import Bench, plan_of, task_of
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import NodeTaskStatus
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.ports.work import Assignment, Outcome, OutcomeKind, Postponed
from tradewind.server.rates import KeyRate, Rate

PLAN = plan_of("a")


def postponed(given: Assignment, wait_ms: int = 5_000) -> Postponed:
    return Postponed(given.task_id, given.nonce, wait_ms)


async def test_postponed_node_task_holds_no_lease_and_returns_on_time(bench: Bench) -> None:
    await bench.submit(PLAN)
    (given,) = await bench.take()
    effects = await bench.shard.postpone([postponed(given)])
    assert (effects.results, effects.due_in) == (("",), 5_000)
    waiting = await task_of(bench)
    assert (waiting.status, waiting.postponed == waiting.retry_at, waiting.failures) == ("pending", True, 0)
    assert await bench.shard.held_by("w1") == []
    assert await bench.complete(given, out="1") != ""
    assert await bench.take() == []
    bench.clock.advance(5_000)
    (again,) = await bench.take()
    assert await bench.complete(again, out="1") == ""
    assert (await task_of(bench)).failures == 0


async def test_postponed_node_task_gives_back_what_it_took_of_the_rate_of_a_key(bench: Bench) -> None:
    await bench.submit(plan_of("a b c d e f", rate=KeyRate("k", Rate.parse("4/m"), 2)))
    first, second = await bench.take()
    await bench.shard.postpone([postponed(first, 120_000)])
    (third,) = await bench.take()
    assert sorted(each.task_id[-1] for each in (second, third)) == ["b", "c"]
    assert await bench.take() == []
    # A bucket that has filled up meanwhile gets no fuller.
    bench.clock.advance(90_000)
    await bench.shard.postpone([postponed(second, 120_000), postponed(third, 120_000)])
    assert len(await bench.take()) == 2


async def test_postponed_node_task_gives_back_its_token_of_its_type(bench: Bench) -> None:
    bench.shard.configure(SystemConfig(rates={"noop": Rate.parse("1/m")}))
    await bench.submit(plan_of("a b"))
    (first,) = await bench.take()
    await bench.shard.postpone([postponed(first, 120_000)])
    assert len(await bench.take()) == 1
    assert await bench.take() == []


async def test_hastened_node_task_is_ready_at_once_and_others_are_unchanged(bench: Bench) -> None:
    await bench.submit(plan_of("a b"))
    first, second = await bench.take()
    await bench.shard.postpone([postponed(first)])
    names = [first.task_id, second.task_id, "flow:0:0:none"]
    assert (await bench.shard.hasten(names)).results == ("", "does not wait", "does not wait")
    assert [each.task_id for each in await bench.take()] == [first.task_id]


async def test_attempt_without_its_lease_is_not_postponed(bench: Bench) -> None:
    await bench.submit(PLAN)
    (given,) = await bench.take()
    assert (await bench.shard.postpone([structs.replace(postponed(given), nonce="other")])).results == ("lost",)
    assert (await task_of(bench)).status is NodeTaskStatus.RUNNING


async def test_postponed_node_task_does_not_wait_beyond_its_total_time(bench: Bench) -> None:
    await bench.submit(plan_of("a", total_ms=3_000))
    (given,) = await bench.take()
    assert (await bench.shard.postpone([postponed(given)])).due_in == 3_000
    bench.clock.advance(3_001)
    await bench.shard.claim()
    await bench.shard.reap()
    ended = await task_of(bench)
    assert ended.error is not None
    assert (ended.status, ended.error.code) == ("failed", "TOTAL_TIMEOUT")


async def test_node_task_whose_total_time_is_over_fails_instead_of_being_postponed(bench: Bench) -> None:
    await bench.submit(plan_of("a", total_ms=3_000))
    (given,) = await bench.take()
    await bench.shard.postpone([postponed(given)])
    bench.clock.advance(3_000)
    (again,) = await bench.take()
    effects = await bench.shard.postpone([postponed(again)])
    assert (effects.results, effects.due_in) == (("lost",), -1)
    ended = await task_of(bench)
    assert ended.error is not None
    assert (ended.status, ended.error.code) == ("failed", "TOTAL_TIMEOUT")
    assert ended.error.message == "it was still waiting when the total time of 3 s ended"
    assert await bench.shard.held_by("w1") == []


async def test_postponed_node_task_can_be_stopped(bench: Bench) -> None:
    await bench.submit(plan_of("a b"))
    first, second = await bench.take()
    await bench.shard.postpone([postponed(first)])
    await bench.shard.stop(RunName("flow", 0, 0), "r0", "", "enough", "ann", 10**9)
    # A node task that was asked to stop before it could be postponed has ended.
    assert (await bench.shard.postpone([postponed(second)])).results == ("lost",)
    assert [(await task_of(bench, node)).status.value for node in "ab"] == ["skipped", "terminated"]
    bench.clock.advance(10_000)
    assert await bench.take() == []


async def test_cached_result_is_recorded_as_cached(bench: Bench) -> None:
    await bench.submit(plan_of("a>b"))
    (given,) = await bench.take()
    outcome = Outcome(given.task_id, given.attempt, given.nonce, OutcomeKind.COMPLETED, (("out", "1"),), cache="mine")
    assert (await bench.shard.complete([outcome])).results == ("",)
    ended = await task_of(bench)
    assert (ended.status, ended.cached, ended.worker_id, ended.outputs) == ("completed", "mine", "", (("out", "1"),))
    (successor,) = await bench.take()
    assert successor.inputs == ((0, "1"),)
    (component,) = await bench.shard.components([(RunName("flow", 0, 0), "0")])
    assert component is not None
    assert (component.completed, component.cached) == (1, 1)
