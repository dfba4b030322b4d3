"""Node task managers are killed, or hang, while chains run."""

import asyncio
import signal

import pytest

from tests.ports import free_port
from tests.system.node_task_manager.scheduler import LENGTH, STEPS, Scheduler, chain, single
from tests.system.node_task_manager.stack import PATIENCE_S, Stack
from tests.waiting import until

FLOWS = [f"f{at}" for at in range(50)]
ALL_NODES = {f"{flow}:0:0:n{at}" for flow in FLOWS for at in range(LENGTH)}


def ran_once(stack: Stack) -> bool:
    """Tell whether the ledger holds every node exactly once, whatever the attempt."""
    done = stack.recorded("done")
    return {key for key, _ in done} == ALL_NODES and done.total() == len(ALL_NODES)


@pytest.mark.parametrize("node_type", STEPS)
async def test_chains_resume_after_node_task_manager_is_killed(stack: Stack, node_type: str) -> None:
    killed, address = await stack.node_task_manager()
    await stack.worker("worker", address, capacity=60)
    async with Scheduler(address) as scheduler:
        await scheduler.submit(chain(0.05, node_type), *FLOWS)
        await until(lambda: len(stack.recorded("done")) > 100, "the chains are under way")
        await killed.kill()
        await stack.node_task_manager(port=int(address.rpartition(":")[2]))
        await scheduler.wait_until_finished(*FLOWS)
        assert {await scheduler.output(flow, "n9") for flow in FLOWS} == {"10"}
    assert ran_once(stack)


@pytest.mark.parametrize("node_type", STEPS)
async def test_worker_moves_to_another_replica_when_its_own_is_killed(stack: Stack, node_type: str) -> None:
    killed, first = await stack.node_task_manager()
    _, second = await stack.node_task_manager()
    stack.start_worker("stays", second, capacity=30)
    await stack.worker("moves", f"ipv4:{first},{second}", capacity=30)
    async with Scheduler(second) as scheduler:
        await scheduler.submit(chain(0.05, node_type), *FLOWS)
        await until(lambda: len(stack.recorded("done")) > 100, "the chains are under way")
        await killed.kill()
        await scheduler.wait_until_finished(*FLOWS)
        assert {await scheduler.output(flow, "n9") for flow in FLOWS} == {"10"}
    assert ran_once(stack)


async def test_nothing_runs_twice_when_sole_replica_hangs_longer_than_leases_last(stack: Stack) -> None:
    hung, address = await stack.node_task_manager(lease_seconds=2)
    await stack.worker("worker", address, capacity=60)
    async with Scheduler(address) as scheduler:
        await scheduler.submit(chain(0.5), *FLOWS)
        await until(lambda: len(stack.recorded("done")) > 300, "the chains are under way")
        hung.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(4)
        finally:
            hung.signal(signal.SIGCONT)
        await scheduler.wait_until_finished(*FLOWS)
    assert ran_once(stack)


@pytest.mark.parametrize("node_type", STEPS)
async def test_node_tasks_of_stranded_worker_run_again_elsewhere(stack: Stack, node_type: str) -> None:
    killed, first = await stack.node_task_manager(lease_seconds=2)
    _, second = await stack.node_task_manager(lease_seconds=2)
    stack.start_worker("stays", second, capacity=30)
    await stack.worker("stranded", first, capacity=30)
    async with Scheduler(second) as scheduler:
        await scheduler.submit(chain(0.05, node_type), *FLOWS)
        await until(lambda: len(stack.recorded("done")) > 100, "the chains are under way")
        await killed.kill()
        await scheduler.wait_until_finished(*FLOWS)
        assert {await scheduler.output(flow, "n9") for flow in FLOWS} == {"10"}
    assert {key for key, _ in stack.recorded("done")} == ALL_NODES


async def test_worker_of_hung_replica_moves_and_keeps_its_node_task(
    stack: Stack,
) -> None:
    """The worker notices before the lease of what it holds lapses, so nothing runs again."""
    gate = stack.home / "gate"
    hung, first = await stack.node_task_manager(lease_seconds=20)
    port = free_port()
    worker = await stack.worker("moves", f"ipv4:{first},127.0.0.1:{port}")
    async with Scheduler(first) as scheduler:
        await scheduler.submit(single("gated", f'{{"gate":"{gate}"}}'), "flow")
        await until(lambda: stack.recorded("begun"), "the node runs")
    _, second = await stack.node_task_manager(port=port, lease_seconds=20)
    hung.signal(signal.SIGSTOP)
    await until(lambda: worker.output.count("connected as") == 2, "the worker moves", timeout=PATIENCE_S)
    gate.touch()
    async with Scheduler(second) as scheduler:
        await scheduler.wait_until_finished("flow", nodes=1)
        node = await scheduler.node("flow")
    assert (node.attempt, node.worker_id, node.outputs[0].value_json) == (1, "moves", "1")
