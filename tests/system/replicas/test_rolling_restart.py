"""Every process is ended and started again, half of them at a time, while flows run on schedule under mTLS."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.system.replicas.cluster import Cluster
from tests.system.replicas.test_replicas_die import begin, every_cycle_once, more_done, running
from tradewind.client import Role, Unauthenticated
from tradewind.tls import TlsFiles

ROUNDS = (
    ("scheduler-0", "node_task_manager-0", "worker-0", "access-0"),
    ("registry-0", "trigger-0"),
    ("scheduler-1", "node_task_manager-1", "worker-1", "access-1"),
)
ROLES = "server.tradewind=service,worker.tradewind=worker"


async def test_a_rolling_restart_loses_nothing(tmp_path: Path) -> None:
    """Certificates are replaced on the way: each process that comes back has another one than those still there.

    Servers and workers are known by them; the user has a token, which the servers ask access about again and again.
    """
    authority = Authority(tmp_path)

    def issued(name: str) -> TlsFiles:
        # One address stands for all replicas of a service, so the name in the certificates is said.
        return replace(authority.issue(name, f"{name}.tradewind"), server_name="localhost")

    cluster = Cluster(
        tmp_path,
        schedulers=2,
        node_task_managers=2,
        workers=2,
        accesses=2,
        tls=issued("server"),
        workers_tls=issued("worker"),
        roles=ROLES,
    )
    async with running(cluster):
        async with cluster.client() as server:
            token = (await server.create_token("ann", role=Role.USER)).token
        person = issued("person")
        async with cluster.client(person) as nobody:
            with pytest.raises(Unauthenticated):
                await nobody.run_flow("any")
        async with cluster.client(person, token) as client:
            await begin(client)
            for names in ROUNDS:
                await more_done(cluster)
                for name in ("server", "worker"):
                    issued(name)
                await asyncio.gather(*map(cluster.restart, names))
            await more_done(cluster)
            assert await every_cycle_once(client) == set(cluster.noted("done"))
