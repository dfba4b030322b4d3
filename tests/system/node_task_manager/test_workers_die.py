"""Workers are killed, stopped, or merely slow."""

import signal
import time

import pytest

from tests.system.node_task_manager.scheduler import STEPS, Scheduler, chain, single
from tests.system.node_task_manager.stack import Stack
from tests.waiting import until


async def test_node_of_killed_worker_runs_again_before_its_lease_lapses(stack: Stack) -> None:
    _, address = await stack.node_task_manager(lease_seconds=100)
    killed = await stack.worker("killed", address)
    async with Scheduler(address) as scheduler:
        await scheduler.submit(single("gated", f'{{"gate":"{stack.home}/never"}}'), "flow")
        await until(lambda: stack.recorded("begun"), "the node runs")
        await stack.worker("heir", address)
        began = time.monotonic()
        await killed.kill()
        await scheduler.wait_until_finished("flow", nodes=1)
        # The lease lasts 100 s, so it was the broken stream that revealed the loss.
        assert time.monotonic() - began < 60
        node = await scheduler.node("flow")
    assert (node.attempt, node.worker_id, node.outputs[0].value_json) == (2, "heir", "2")
    assert stack.recorded("done") == {("flow:0:0:n0", 2): 1}


async def test_result_of_worker_suspended_beyond_its_lease_is_refused(stack: Stack) -> None:
    _, address = await stack.node_task_manager(lease_seconds=3)
    gate = stack.home / "gate"
    stopped = await stack.worker("stopped", address)
    async with Scheduler(address) as scheduler:
        await scheduler.submit(single("gated", f'{{"gate":"{gate}"}}'), "flow")
        await until(lambda: stack.recorded("begun"), "the node runs")
        await stack.worker("heir", address)
        stopped.signal(signal.SIGSTOP)
        await scheduler.wait_until_finished("flow", nodes=1)
        gate.touch()
        stopped.signal(signal.SIGCONT)
        await until(
            lambda: stack.recorded("done")["flow:0:0:n0", 1] or "is lost" in stopped.output,
            "the suspended worker ends its attempt, or learns that it was lost",
        )
        stopped.signal(signal.SIGTERM)
        # The worker leaves only after its reports have been received.
        assert await stopped.wait_for_exit() == 0
        node = await scheduler.node("flow")
    assert "not acknowledged" not in stopped.output
    assert (node.attempt, node.worker_id, node.outputs[0].value_json) == (2, "heir", "2")


@pytest.mark.parametrize("node_type", STEPS)
async def test_other_worker_finishes_chains_of_killed_worker(stack: Stack, node_type: str) -> None:
    _, address = await stack.node_task_manager()
    stack.start_worker("staying", address)
    killed = await stack.worker("killed", address)
    flows = [f"f{at}" for at in range(30)]
    async with Scheduler(address) as scheduler:
        await scheduler.submit(chain(0.02, node_type), *flows)
        await until(lambda: len(stack.recorded("done")) > 60, "the chains are under way")
        await killed.kill()
        await scheduler.wait_until_finished(*flows)
        assert {await scheduler.output(flow, "n9") for flow in flows} == {"10"}
    done = stack.recorded("done")
    again = {key for key, attempt in done if attempt > 1}
    assert {key for key, _ in done} == {f"{flow}:0:0:n{at}" for flow in flows for at in range(10)}
    # Only what the killed worker held could run again, and not all of that had done its work.
    assert len(again) <= 20


async def test_node_that_outlasts_many_leases_runs_once(stack: Stack) -> None:
    _, address = await stack.node_task_manager(lease_seconds=3)
    await stack.worker("slow", address)
    async with Scheduler(address) as scheduler:
        await scheduler.submit(single("step", '{"seconds":12}'), "flow")
        await scheduler.wait_until_finished("flow", nodes=1)
    assert stack.recorded("begun") == {("flow:0:0:n0", 1): 1}


async def test_node_that_killed_three_workers_fails_with_history(stack: Stack) -> None:
    _, address = await stack.node_task_manager()
    async with Scheduler(address) as scheduler:
        await scheduler.submit(single("lethal", "{}"), "flow")
        for number in range(3):
            worker = await stack.worker(f"w{number}", address)
            await worker.wait_for_exit()
        spared = await stack.worker("spared", address)
        await scheduler.wait_until_finished("flow", nodes=0)
        node = await scheduler.node("flow")
        spared.signal(signal.SIGTERM)
        assert await spared.wait_for_exit() == 0
    assert (node.error.code, [past.worker_id for past in node.history]) == ("WORKER_LOST", ["w0", "w1", "w2"])
    assert stack.recorded("begun") == {("flow:0:0:n0", attempt): 1 for attempt in (1, 2, 3)}
