"""Ended cycles beyond what a flow keeps are removed, whichever replica is killed."""

from tests.system.node_task_manager.scheduler import Scheduler, single
from tests.system.node_task_manager.stack import PATIENCE_S, Stack, retry_until_answered
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import component_pb2, queue_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2

PLAN = single("step", "{}")
KEEP_CYCLES = 2


async def run_cycles(scheduler: Scheduler, cycles: range) -> None:
    """Submit cycles of one flow, and wait until all of them have ended."""
    part = component_pb2.ComponentSubmission(component_id="0", plan_digest=PLAN.digest)
    runs = [
        component_pb2.RunSubmission(
            flow_id="f", cycle=at, run_id=f"r{at}", user_id="default", components=[part], keep_cycles=KEEP_CYCLES
        )
        for at in cycles
    ]
    request = pb2.SubmitComponentsRequest(runs=runs, plans=[PLAN])
    await retry_until_answered(lambda: scheduler.stub.SubmitComponents(request, timeout=5))
    names = [pb2.RunReference(flow_id="f", cycle=at, user_id="default") for at in cycles]

    async def ended() -> bool:
        found = await retry_until_answered(
            lambda: scheduler.stub.GetComponents(pb2.GetComponentsRequest(runs=names), timeout=5)
        )
        return all(each.status == component_pb2.COMPONENT_STATUS_FINISHED for each in found.components)

    await until(ended, "the cycles have ended", timeout=PATIENCE_S)


async def on_record(scheduler: Scheduler, cycles: range) -> list[int]:
    """Return the cycles that the node task manager still has on record."""
    names = [pb2.RunReference(flow_id="f", cycle=at, user_id="default") for at in cycles]
    found = await retry_until_answered(
        lambda: scheduler.stub.GetComponents(pb2.GetComponentsRequest(runs=names), timeout=5)
    )
    return sorted({each.cycle for each in found.components})


async def test_another_replica_cleans_after_cleaning_one_is_killed(stack: Stack) -> None:
    killed, _ = await stack.node_task_manager(settle_seconds=0, clean_seconds=0.5)
    leader = await leader_of(stack)
    _, second = await stack.node_task_manager(settle_seconds=0, clean_seconds=0.5)
    await stack.worker("worker", second)
    async with Scheduler(second) as scheduler:
        await run_cycles(scheduler, range(6))

        async def cleaned(cycles: range, expected: list[int]) -> bool:
            return await on_record(scheduler, cycles) == expected

        await until(lambda: cleaned(range(6), [4, 5]), "only the newest are left", timeout=PATIENCE_S)
        assert await leader_of(stack) == leader
        await killed.kill()
        await run_cycles(scheduler, range(6, 10))
        await until(lambda: cleaned(range(10), [8, 9]), "the other replica has cleaned", timeout=PATIENCE_S)
        assert await leader_of(stack) != leader
        statistics = await retry_until_answered(
            lambda: scheduler.stub.GetQueueStats(queue_pb2.GetQueueStatsRequest(), timeout=5)
        )
        assert (statistics.cleaned_runs, statistics.cleaned_node_tasks) == (8, 8)


async def leader_of(stack: Stack) -> bytes:
    """Wait until a replica leads the cleaning, and return its name."""
    found: list[bytes] = []

    async def elected() -> bool:
        found[:] = [await stack.as_admin("GET", "trading_flow:{s0}:cleaner") or b""]
        return bool(found[0])

    await until(elected, "a replica leads", timeout=PATIENCE_S)
    return found[0]
