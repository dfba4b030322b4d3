"""Every process is ended and started again, half of them at a time, while flows run on schedule under mTLS."""

import asyncio
from dataclasses import replace
from pathlib import Path

from tests.certificates import Authority
from tests.system.replicas.cluster import Cluster
from tests.system.replicas.test_replicas_die import begin, every_cycle_once, more_done, running

ROUNDS = (
    ("scheduler-0", "node_task_manager-0", "worker-0"),
    ("registry-0", "trigger-0"),
    ("scheduler-1", "node_task_manager-1", "worker-1"),
)


async def test_a_rolling_restart_loses_nothing(tmp_path: Path) -> None:
    """Certificates are replaced on the way: each process that comes back has another one than those still there."""
    authority = Authority(tmp_path)
    # One address stands for all replicas of a service, so the name in the certificates is said.
    files = replace(authority.issue("tradewind"), server_name="localhost")
    cluster = Cluster(tmp_path, schedulers=2, node_task_managers=2, workers=2, tls=files)
    async with running(cluster), cluster.client() as client:
        await begin(client)
        for names in ROUNDS:
            await more_done(cluster)
            authority.issue("tradewind")
            await asyncio.gather(*map(cluster.restart, names))
        await more_done(cluster)
        assert await every_cycle_once(client) == set(cluster.noted("done"))
