"""Node tasks that fail and are retried while the node task manager is killed between their attempts."""

from google.protobuf.duration_pb2 import Duration

from tests.system.node_task_manager.scheduler import Scheduler, single
from tests.system.node_task_manager.stack import Stack
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import component_pb2, node_task_pb2, retry_pb2

PENDING = node_task_pb2.NODE_TASK_STATUS_PENDING
COMPLETED = node_task_pb2.NODE_TASK_STATUS_COMPLETED


def shaky(failures: int, initial: Duration) -> component_pb2.Plan:
    """Return a plan of one node that fails `failures` times, each wait as long as the first."""
    plan = single("shaky", f'{{"failures":{failures}}}')
    plan.nodes[0].retry.CopyFrom(
        retry_pb2.RetryPolicy(attempts=failures + 1, initial=initial, factor=1, maximum=initial, jitter=0)
    )
    return plan


async def test_retried_node_completes_though_node_task_manager_is_killed_meanwhile(
    stack: Stack,
) -> None:
    process, address = await stack.node_task_manager()
    port = int(address.rpartition(":")[2])
    await stack.worker("worker", address)
    async with Scheduler(address) as scheduler:
        await scheduler.submit(shaky(2, Duration(seconds=5)), "shaky")
        for failures in (1, 2):

            async def waits(failures: int = failures) -> bool:
                task = await scheduler.node("shaky")
                return task.status == PENDING and task.failures == failures

            await until(waits, f"attempt {failures} has failed and the next one has not begun", timeout=30)
            waiting = await scheduler.node("shaky")
            assert waiting.HasField("retry_at")
            assert waiting.last_error.message == f"attempt {failures} fails"
            assert waiting.reason.startswith(f"attempt {failures + 1} of 3 begins at ")
            await process.kill()
            process, _ = await stack.node_task_manager(port=port)
        await scheduler.wait_until_finished("shaky", nodes=1)
        done = await scheduler.node("shaky")
        assert (done.status, done.attempt, done.failures) == (COMPLETED, 3, 2)
    assert stack.recorded("begun") == {("shaky:0:0:n0", attempt): 1 for attempt in (1, 2, 3)}


async def test_retries_begin_on_time_without_other_work(stack: Stack) -> None:
    _, address = await stack.node_task_manager()
    await stack.worker("worker", address)
    async with Scheduler(address) as scheduler:
        await scheduler.submit(shaky(10, Duration(nanos=20_000_000)), "shaky")
        await scheduler.wait_until_finished("shaky", nodes=1)
        done = await scheduler.node("shaky")
        assert done.failures == 10
        took = done.ended_at.ToMilliseconds() - done.registered_at.ToMilliseconds()
    # With checks every second or so it would take 10 s; no machine should be that busy.
    assert 10 * 20 <= took < 9_000


async def test_attempt_without_heartbeats_is_stopped_and_one_with_them_continues(stack: Stack) -> None:
    # For one lease after a start, nothing is taken from workers.
    _, address = await stack.node_task_manager(lease_seconds=3)
    await stack.worker("worker", address)
    plan = single("silent", "{}")
    plan.nodes[0].heartbeat_timeout.FromSeconds(4)
    plan.nodes[0].retry.CopyFrom(retry_pb2.RetryPolicy(attempts=2, initial=Duration(nanos=10_000_000)))
    async with Scheduler(address) as scheduler:
        await scheduler.submit(plan, "silent")
        await until(lambda: stack.recorded("done"), "the worker stops the silent attempt", timeout=30)
        await scheduler.wait_until_finished("silent", nodes=1)
        done = await scheduler.node("silent")
        assert (done.status, done.attempt, done.failures) == (COMPLETED, 2, 1)
        assert done.last_error.code == "HEARTBEAT_TIMEOUT"
    assert stack.recorded("done") == {("silent:0:0:n0", 1): 1, ("silent:0:0:n0", 2): 1}
