"""Records that somebody has changed by hand, or that the store has lost, cost nothing but what depends on them."""

from msgspec import structs

from tests.stores.node_task_manager.shards import plan_of
from tests.stores.node_task_manager.wards import Ward
from tradewind.node_task_manager.domain.component import ComponentStatus, Release, RunSubmission
from tradewind.node_task_manager.domain.names import RunName

RUN = RunName("flow", 0, 0)


async def test_component_whose_plan_is_lost_is_skipped_when_it_is_released(ward: Ward) -> None:
    plan = plan_of("a b")
    await ward.shard.save(plan)
    run = RunSubmission(RUN, "r0", "default", (("0", plan.digest),), 3, begun_ms=ward.clock())
    await ward.shard.submit([structs.replace(run, withheld=("0",))])
    await ward.do("DEL", f"plan:{plan.digest}")
    await ward.shard.release(RUN, "r0", [Release("0")])
    (component,) = await ward.shard.components([(RUN, "0")])
    assert component is not None
    assert (component.status, component.skipped) == (ComponentStatus.FINISHED, 2)


async def test_statistics_of_another_type_do_not_keep_node_tasks_from_ending(ward: Ward) -> None:
    await ward.submit(plan_of("a.out>b.in"))
    (taken,) = await ward.take()
    await ward.do("DEL", "queue:stats")
    await ward.do("SET", "queue:stats", "x")
    assert await ward.complete(taken, out="1") == ""
    assert [each.task_id for each in await ward.take()] == [str(RUN) + ":b"]
