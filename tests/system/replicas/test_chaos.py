"""Long runs that kill processes at random; `make chaos` runs them, `make test` does not.

CHAOS_SECONDS is how long processes are killed (480 by default), CHAOS_SEED repeats a run.
"""

import asyncio
import os
import random
import time
from pathlib import Path

import pytest

from tests.system.replicas.cluster import Cluster
from tests.system.replicas.test_replicas_die import pause_and_check_cycles, running, start_flows
from tests.waiting import until
from tradewind.server.redis.acl import ADMIN
from tradewind.server.redis.client import connect

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1200)]

SECONDS = float(os.environ.get("CHAOS_SECONDS", "480"))
KILLS = 20


@pytest.fixture
def draw() -> random.Random:
    """Draws random numbers from a seed that is printed when the test fails."""
    seed = int(os.environ.get("CHAOS_SEED") or time.time())
    print(f"CHAOS_SEED={seed}")
    return random.Random(seed)


async def run_store_command(cluster: Cluster, *command: str) -> object:
    """Run a command of the store."""
    client = connect(cluster.store.url_for(ADMIN), max_connections=1)
    try:
        return await client.execute_command(*command)
    finally:
        await client.end()


async def disrupt(cluster: Cluster, victim: str, draw: random.Random) -> None:
    """Kill a process and start it again after a while, or restart the store, or cut its connections."""
    if victim == "store":
        await cluster.restart_store()
    elif victim == "connections":
        await run_store_command(cluster, "CLIENT", "KILL", "TYPE", draw.choice(("normal", "pubsub")), "SKIPME", "yes")
    else:
        await cluster.kill(victim)
        await asyncio.sleep(draw.choice((0.0, 0.5, 3.0)))
        await cluster.start_process(victim)


async def wait_until_nothing_is_held(cluster: Cluster) -> None:
    """Wait until the node task manager holds no lease and no slot."""
    left: list[object] = []

    async def free() -> bool:
        await asyncio.sleep(0.5)
        left[:] = [
            key
            for pattern in ("*}:inflight", "*}:worker_tasks:*", "*}:slots:*", "*}:todo", "*}:delayed")
            for key in await run_store_command(cluster, "KEYS", pattern)  # type: ignore[attr-defined]
        ]
        return not left

    await until(free, "no lease, slot or work is left", timeout=90)


async def test_killing_schedulers_twenty_times_leaves_no_gap(tmp_path: Path, draw: random.Random) -> None:
    cluster = Cluster(tmp_path, schedulers=2, workers=2)
    async with running(cluster), cluster.client() as client:
        await start_flows(client)
        for kill in range(KILLS):
            await asyncio.sleep(draw.uniform(0.0, 3.0))
            await disrupt(cluster, f"scheduler-{kill % 2}", draw)
        ran = await pause_and_check_cycles(client)
        done = cluster.recorded("done")
        assert set(done) == ran
        assert done.total() == len(ran) > 2 * 100
        await wait_until_nothing_is_held(cluster)


async def test_every_cycle_completes_once_whatever_is_killed(tmp_path: Path, draw: random.Random) -> None:
    cluster = Cluster(tmp_path, schedulers=2, node_task_managers=2, workers=3)
    victims = [*cluster.services, *cluster.workers, "store", "connections", "connections"]
    async with running(cluster), cluster.client() as client:
        await start_flows(client)
        until_s = time.monotonic() + SECONDS
        while time.monotonic() < until_s:
            await asyncio.sleep(draw.uniform(0.0, 2.0))
            await disrupt(cluster, draw.choice(victims), draw)
        ran = await pause_and_check_cycles(client)
        done = cluster.recorded("done")
        print(f"{len(ran)} node tasks, of which {done.total() - len(ran)} ran twice since their worker was killed")
        assert set(done) == ran
        await wait_until_nothing_is_held(cluster)
