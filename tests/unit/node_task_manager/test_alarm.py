"""The alarm that wakes a dispatcher when something becomes due, and the dispatcher that it wakes."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop
from msgspec import structs

from tests.unit.node_task_manager.conftest import Bench, outcome
from tests.waiting import until
from tradewind.node_task_manager.domain.node_task import TaskError
from tradewind.node_task_manager.domain.plan import Plan, PlanNode
from tradewind.node_task_manager.domain.retry import RetryPolicy
from tradewind.node_task_manager.ports.work import OutcomeKind
from tradewind.node_task_manager.use_cases.alarm import Alarm


async def test_alarm_rings_once_at_earliest_time() -> None:
    loop, rung = asyncio.get_running_loop(), []  # type: tuple[asyncio.AbstractEventLoop, list[float]]
    alarm = Alarm(lambda: rung.append(loop.time()))
    began = loop.time()
    alarm.set(60)
    alarm.set(0.02)
    alarm.set(30)
    await until(lambda: rung, "it rings")
    assert 0.015 <= rung[0] - began < 10
    alarm.set(0.01)
    await until(lambda: len(rung) == 2, "it rings again when it is set again")


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_alarm_that_rings_at_once_may_be_set_again(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Many node tasks may be due at once, such as delays of 0 seconds."""

    async def rings() -> None:
        rung: list[bool] = []
        alarm = Alarm(lambda: rung.append(True))
        for seconds in (0, 0.0001, 60, 0):
            alarm.set(seconds)
        await until(lambda: rung, "it rings")
        assert rung == [True]

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(rings())


async def test_cancelled_alarm_does_not_ring() -> None:
    rung: list[bool] = []
    alarm = Alarm(lambda: rung.append(True))
    alarm.set(0)
    alarm.cancel()
    await asyncio.sleep(0)
    later = asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, later.set)
    await later.wait()
    assert rung == []


async def test_dispatcher_assigns_due_retry_without_other_activity(bench: Bench) -> None:
    worker, line = await bench.connect()
    plan = Plan("p", (PlanNode("a", "noop", retry=RetryPolicy(2, initial_ms=20, jitter=0)),), ())
    await bench.store.save(plan)
    bench.plans.put(plan)
    await bench.accepted(plan)
    await until(lambda: line.nodes == ["a"], "the first attempt is handed out")
    shard, done = outcome(line.assigned[0])
    failed = structs.replace(done, kind=OutcomeKind.FAILED, outputs=(), error=TaskError("NODE_ERROR", "broke"))
    claims = bench.store.count("claim")
    await bench.connections.handle_message(worker, 2, [(shard, failed)])
    await until(lambda: bench.store.count("complete"), "the failure is stored")
    bench.clock.advance(20)
    await until(lambda: line.nodes == ["a", "a"], "the second attempt is handed out")
    assert line.assigned[1].assignment.attempt == 2
    assert bench.store.count("claim") - claims < 10, "it was not looked for in a loop"
