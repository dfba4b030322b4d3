"""The store's master dies, and the replica that replaces it lacks some recent work."""

import asyncio
from pathlib import Path

from tests.system.replicas.cluster import Cluster
from tests.system.replicas.failover import FailoverStore
from tests.system.replicas.test_chaos import wait_until_nothing_is_held
from tests.system.replicas.test_replicas_die import (
    FLOWS,
    PATIENCE_S,
    pause_and_check_cycles,
    running,
    start_flows,
    wait_for_more_nodes,
)
from tests.waiting import until
from tradewind.client import Client


async def all_on_record(cluster: Cluster, client: Client) -> bool:
    """Tell whether each flow has as many cycles on record as have begun nodes, even in vain."""
    await asyncio.sleep(0.2)
    begun = [key.split(":")[:2] for key in cluster.recorded("begun")]
    for name in FLOWS:
        newest = [cycle.cycle async for cycle in client.list_cycles(name)][:1]
        if newest < [max((int(cycle) for flow, cycle in begun if flow == name), default=-1)]:
            return False
    return True


async def test_work_lost_in_failover_is_repeated(tmp_path: Path) -> None:
    """Cycles that had ended before stay as they were.

    All others are on record once, under the numbers that they had; nodes whose runs were lost run again, under the same
    idempotency keys.
    """
    store = FailoverStore(tmp_path, down_after_s=3)
    cluster = Cluster(tmp_path, schedulers=2, node_task_managers=2, workers=2, store=store)
    async with running(cluster), cluster.client() as client:
        await start_flows(client)
        await wait_for_more_nodes(cluster)
        before: set[str] = set()

        async def some_have_ended() -> bool:
            await asyncio.sleep(0.05)
            for name in FLOWS:
                ended = [each.cycle async for each in client.list_cycles(name) if each.status == "completed"]
                before.update(f"{name}:{cycle}:0:{node}" for cycle in ended for node in ("first", "second"))
            return bool(before)

        await until(some_have_ended, "cycles have ended", timeout=PATIENCE_S)
        await store.cut_off_replica()
        await wait_for_more_nodes(cluster)
        await store.kill_master()
        await until(lambda: all_on_record(cluster, client), "the lost cycles have begun again", timeout=PATIENCE_S)
        assert await store.last_write_is_lost()
        ran = await pause_and_check_cycles(client)
        done = cluster.recorded("done")
        assert set(done) == ran
        assert {key for key in before if done[key] != 1} == set()
        await wait_until_nothing_is_held(cluster)
        assert (await client.run_doctor()).findings == ()
