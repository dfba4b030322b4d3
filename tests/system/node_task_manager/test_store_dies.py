"""The store is killed, hangs, or cuts its connections, while chains run."""

import asyncio
import os
import signal

import pytest

from tests.system.node_task_manager.scheduler import LENGTH, STEPS, Scheduler, chain
from tests.system.node_task_manager.stack import Stack
from tests.waiting import until

FLOWS = [f"f{at}" for at in range(50)]
ALL_NODES = {f"{flow}:0:0:n{at}" for flow in FLOWS for at in range(LENGTH)}


@pytest.mark.parametrize("node_type", STEPS)
async def test_chains_resume_after_store_is_killed_and_restarted(stack: Stack, node_type: str) -> None:
    _, address = await stack.node_task_manager()
    await stack.worker("worker", address, capacity=60)
    async with Scheduler(address) as scheduler:
        submitting = [asyncio.create_task(scheduler.submit(chain(0.02, node_type), flow)) for flow in FLOWS[:30]]
        await until(lambda: len(stack.recorded("done")) > 60, "the chains are under way")
        await stack.kill_store()
        submitting += [asyncio.create_task(scheduler.submit(chain(0.02, node_type), flow)) for flow in FLOWS[30:]]
        await stack.restart_store()
        await asyncio.gather(*submitting)
        await scheduler.wait_until_finished(*FLOWS)
        assert {await scheduler.output(flow, "n9") for flow in FLOWS} == {"10"}
    assert {key for key, _ in stack.recorded("done")} == ALL_NODES


@pytest.mark.parametrize("node_type", STEPS)
async def test_nothing_runs_twice_when_store_hangs_longer_than_leases_last(stack: Stack, node_type: str) -> None:
    # An answer after 5 s is lost; assignments in it are sent again 2.1 s later, which must be within a lease.
    manager, address = await stack.node_task_manager(lease_seconds=4)
    await stack.worker("worker", address, capacity=60)
    async with Scheduler(address) as scheduler:
        # The store hangs no sooner than a lease after the start; until then nothing is taken back anyway.
        await scheduler.submit(chain(0.7, node_type), *FLOWS)
        await until(lambda: len(stack.recorded("done")) > 300, "the chains are under way")
        pid = stack.store.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            # The manager waits for an answer for longer than leases last.
            await manager.wait_for_output("has not answered for 5 s")
        finally:
            os.kill(pid, signal.SIGCONT)
        await scheduler.wait_until_finished(*FLOWS)
        assert {await scheduler.output(flow, "n9") for flow in FLOWS} == {"10"}
    done = stack.recorded("done")
    assert ({key for key, _ in done}, done.total()) == (ALL_NODES, len(ALL_NODES))


@pytest.mark.parametrize("node_type", STEPS)
async def test_every_node_runs_once_though_store_connections_are_cut(stack: Stack, node_type: str) -> None:
    _, address = await stack.node_task_manager()
    await stack.worker("worker", address, capacity=60)
    cuts, enough = 0, asyncio.Event()

    async def cut() -> None:
        nonlocal cuts
        while not enough.is_set():
            for kind in ("normal", "normal", "pubsub"):
                await stack.as_admin("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
                cuts += 1
                await asyncio.sleep(0.03)

    async with Scheduler(address) as scheduler:
        cutting = asyncio.create_task(cut())
        await asyncio.gather(*(scheduler.submit(chain(0.1, node_type), flow) for flow in FLOWS))
        await until(lambda: cuts > 10 and len(stack.recorded("done")) > 400, "most nodes have run")
        enough.set()
        await cutting
        await scheduler.wait_until_finished(*FLOWS)
        assert {await scheduler.output(flow, "n9") for flow in FLOWS} == {"10"}
    done = stack.recorded("done")
    assert ({key for key, _ in done}, done.total()) == (ALL_NODES, len(ALL_NODES))
