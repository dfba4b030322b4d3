"""Batches whose workers, or whose node task manager, are killed in the middle: the counts at the end are exact."""

import asyncio
import random
from collections import Counter
from typing import Literal

import pytest

from tests.system.node_task_manager.stack import PATIENCE_S, Stack
from tests.system.node_task_manager.store_proxy import StoreProxy
from tests.waiting import until
from tradewind.client import Addresses, BatchHandle, BatchStatus, Client, NodeTaskStatus

ITEMS = 150
SUBMIT = "submit_runs_"
"""The prefix of the store's name for the script that stores a batch."""


def client_of(address: str) -> Client:
    """Return a client of a node task manager alone."""
    return Client(addresses=Addresses(address, address, address), patience=PATIENCE_S)


async def wait_for_progress(handle: BatchHandle, share: float) -> None:
    """Wait until this share of the items has ended."""

    async def far_enough() -> bool:
        progress = await handle.progress()
        counted = progress.queued + progress.running + progress.ended
        assert counted == progress.total == ITEMS
        return progress.ended >= share * ITEMS

    await until(far_enough, f"{share:.0%} of the batch have ended", timeout=PATIENCE_S)


async def check_exact_result(stack: Stack, handle: BatchHandle) -> None:
    """Wait for the end: every item completed, counted once, with its own result."""
    batch = await handle.wait(PATIENCE_S)
    progress = batch.progress
    assert (batch.status, progress.completed, progress.failed, progress.cancelled) == (
        BatchStatus.COMPLETED,
        ITEMS,
        0,
        0,
    )
    assert [list(item.values()) for item in await handle.result()] == [[at + 1] for at in range(ITEMS)]
    assert {key for key, _ in stack.recorded("done")} == {f"batch:{handle.batch_id}:{at}" for at in range(ITEMS)}


def items(seconds: float) -> list[dict[str, float]]:
    return [{"value": at, "seconds": seconds} for at in range(ITEMS)]


async def test_batch_completes_exactly_though_worker_is_killed(stack: Stack) -> None:
    _, address = await stack.node_task_manager()
    killed = await stack.worker("killed", address, capacity=5)
    await stack.worker("heir", address, capacity=5)
    async with client_of(address) as client:
        handle = await client.submit_batch("step", items(0.05))
        await wait_for_progress(handle, 0.2)
        await killed.kill()
        await check_exact_result(stack, handle)


async def test_batch_counts_stay_exact_though_workers_are_killed_repeatedly(stack: Stack) -> None:
    """Twelve kills, whatever each worker is doing: every item ends once, and only unreported items are done again."""
    drawn = random.Random(7)
    _, address = await stack.node_task_manager()
    workers = [await stack.worker(f"w{at}", address, capacity=4) for at in range(3)]
    async with client_of(address) as client:
        handle = await client.submit_batch("step", items(0.3))
        for kill in range(12):
            await asyncio.sleep(drawn.random() * 0.3)
            at = kill % len(workers)
            await workers[at].kill()
            workers[at] = await stack.worker(f"w{kill + len(workers)}", address, capacity=4)
        batch = await handle.wait(PATIENCE_S)
        results = [item async for item in client.list_batch_results(handle.batch_id)]
    progress = batch.progress
    assert (progress.ended, progress.queued, progress.running, progress.cancelled) == (ITEMS, 0, 0, 0)
    by_status = Counter(item.status for item in results)
    assert by_status[NodeTaskStatus.COMPLETED] == progress.completed
    # An item may be so unlucky that it loses its worker every time.
    assert {item.error.code for item in results if item.error is not None} <= {"WORKER_LOST"}
    done = Counter(key for key, _ in stack.recorded("done"))
    assert set(done) >= {item.node_task_id for item in results if item.error is None}
    # Only work that a killed worker had done but not yet reported was done again.
    assert sum(done.values()) - len(done) <= 12 * 4


async def test_batch_completes_exactly_though_node_task_manager_is_killed(stack: Stack) -> None:
    replica, address = await stack.node_task_manager()
    await stack.worker("worker", address, capacity=10)
    async with client_of(address) as client:
        handle = await client.submit_batch("step", items(0.05), request_id="once")
        await wait_for_progress(handle, 0.2)
        await replica.kill()
        await stack.node_task_manager(port=int(address.rpartition(":")[2]))
        again = await client.submit_batch("step", items(0.05), request_id="once")
        assert again.batch_id == handle.batch_id
        await check_exact_result(stack, handle)


@pytest.mark.parametrize("held_back", ["calls", "answers"])
async def test_batch_is_stored_whole_though_node_task_manager_is_killed_meanwhile(
    stack: Stack, held_back: Literal["calls", "answers"]
) -> None:
    """The batch that is being submitted exists as a whole or not at all; the client submits it again by itself."""
    async with StoreProxy(stack.store.port, SUBMIT, held_back) as proxy:
        killed, address = await stack.node_task_manager(store_url=stack.url_through(proxy.port))
        async with client_of(address) as client:
            submitting = asyncio.create_task(client.submit_batch("step", items(0.0), request_id="once"))
            await proxy.mark_seen.wait()

            async def stored() -> bool:
                return bool(await stack.as_admin("KEYS", "trading_flow:{s0}:run:batch:*")) == (held_back == "answers")

            await until(stored, "the batch is stored, or is not")
            await killed.kill()
            await stack.node_task_manager(port=int(address.rpartition(":")[2]))
            handle = await submitting
            await stack.worker("worker", address)
            await check_exact_result(stack, handle)
            assert [batch.batch_id async for batch in client.list_batches()] == [handle.batch_id]
