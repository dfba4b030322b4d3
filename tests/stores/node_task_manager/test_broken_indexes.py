"""An index that somebody has replaced by a key of another type is removed by the doctor, and everything goes on."""

from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

import pytest
from redis.exceptions import ResponseError

from tests.stores.node_task_manager.shards import plan_of
from tests.stores.node_task_manager.wards import Ward
from tradewind.node_task_manager.domain.ad_hoc import AdHocWork
from tradewind.node_task_manager.domain.component import ComponentStatus
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.ports.work import Assignment

PLAN = plan_of("a.out>b.in", schedule_to_start_ms=3_600_000)
OTHER = plan_of("x")
TASK = AdHocWork("default", "noop", ("{}",))
TASK_RUN = TASK.run("t")
EVERY_SHARD = (
    *("inflight", "node_tasks_list", "delayed", "start_deadlines", "ready_types", "parked", "blocked_of", "to_clean"),
    *("todo", "ended_runs", "walks", "last_events", "events:3"),
)
OF_ITS_OWN = (
    *("worker_tasks:w1", "worker_session:w1", "worker_incarnation:w1", "ready:noop:default", "ring:noop", "left:noop"),
    *("flow_runs:flow", "user_runs:default:task", "slots:user:default", "slots:flow:flow", "task_events:task:t"),
    "notifications:default",
)


async def tried(call: Awaitable[Any]) -> Any:
    """Do what fails while an index is of another type."""
    with suppress(ResponseError):
        return await call
    return None


async def begin(ward: Ward) -> None:
    for cycle in range(3):
        await tried(ward.submit(PLAN, cycle=cycle))
    await tried(ward.submit(OTHER, flow_id="other", user_id="bob"))
    await ward.shard.save(TASK.plan(TASK_RUN))
    await tried(ward.shard.submit([TASK.submission(TASK_RUN)]))


async def work(ward: Ward, given: list[Assignment]) -> None:
    """Complete what was given, and all that is given after it."""
    for _ in range(6):
        for each in given:
            await tried(ward.complete(each, out="1"))
        await tried(ward.shard.reap())
        given = await tried(ward.take(100, "w2")) or []


async def let_leases_lapse(ward: Ward) -> None:
    for _ in range(2):
        ward.clock.advance(60_000)
        await work(ward, [])


@pytest.mark.parametrize("index", [*EVERY_SHARD, *OF_ITS_OWN])
async def test_runs_go_on_once_the_doctor_has_removed_an_index_of_another_type(ward: Ward, index: str) -> None:
    await ward.configure(max_running_per_user=50, max_running_per_flow=50)
    await ward.submit(PLAN)
    taken = await ward.take(1)
    await ward.submit(PLAN, cycle=1)
    await ward.do("DEL", index)
    await ward.do("HSET" if index != "last_events" else "RPUSH", index, "x", "broken")
    await begin(ward)
    await work(ward, taken)
    await tried(ward.shard.open_session("w1", "i", []))
    await tried(ward.shard.clean("c", 0))
    for _ in range(3):
        await ward.found(mend=True)
    await begin(ward)
    await let_leases_lapse(ward)
    assert await ward.found() == []
    runs = [RunName("flow", cycle, 0) for cycle in range(3)] + [RunName("other", 0, 0), TASK_RUN]
    found = await ward.shard.components([(run, "0") for run in runs])
    assert [each and each.status for each in found] == [ComponentStatus.FINISHED] * len(runs)
