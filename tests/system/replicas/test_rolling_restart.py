"""Every process is ended and restarted, half of them at a time, while flows run on schedule and by hand."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.system.replicas.cluster import Cluster
from tests.system.replicas.test_replicas_die import (
    flow,
    pause_and_check_cycles,
    running,
    start_flows,
    wait_for_more_nodes,
)
from tradewind.client import Client, Role, Unauthenticated
from tradewind.tls import TlsFiles

ROUNDS = (
    ("scheduler-0", "node_task_manager-0", "worker-0", "access-0"),
    ("registry-0", "trigger-0"),
    ("scheduler-1", "node_task_manager-1", "worker-1", "access-1"),
)
OLD, NEW = "the secret until now", "the secret from now on"
ROLES = "server.tradewind=service,worker.tradewind=worker"


async def test_a_rolling_restart_loses_nothing(tmp_path: Path) -> None:
    """Certificates are replaced on the way: each restarted process has a newer certificate than those still running.

    Servers and workers are known by their certificates; the user has a token, about which servers keep asking access.
    """
    authority = Authority(tmp_path)

    def issued(name: str) -> TlsFiles:
        # One address stands for all replicas of a service, so the name in the certificates must be given.
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
        async with cluster.client(person) as anonymous:
            with pytest.raises(Unauthenticated):
                await anonymous.run_flow("any")
        async with cluster.client(person, token) as client:
            await start_flows(client)
            for names in ROUNDS:
                await wait_for_more_nodes(cluster)
                for name in ("server", "worker"):
                    issued(name)
                await asyncio.gather(*map(cluster.restart, names))
            await wait_for_more_nodes(cluster)
            assert await pause_and_check_cycles(client) == set(cluster.recorded("done"))


async def test_service_token_changes_without_refused_calls(tmp_path: Path) -> None:
    """In the three steps of docs/access.md; processes of adjacent steps call each other all the time."""
    cluster = Cluster(tmp_path, workers=0, accesses=1)
    cluster.environment["TRADEWIND_SERVICE_TOKEN"] = OLD
    async with running(cluster):
        async with cluster.client(token=OLD) as server:
            user = (await server.create_token("ann", role=Role.USER)).token
            cluster.environment["TRADEWIND_TOKEN"] = (await server.create_token("pool", role=Role.WORKER)).token
        cluster.workers.append("worker-0")
        await cluster.start_process("worker-0")
        async with cluster.client(token=user) as client, asyncio.TaskGroup() as tasks:
            await start_flows(client)
            calling = tasks.create_task(run_repeatedly(client))
            for shown, accepted in ((OLD, NEW), (NEW, OLD), (NEW, "")):
                cluster.environment["TRADEWIND_SERVICE_TOKEN"] = shown
                cluster.environment["TRADEWIND_SERVICE_TOKENS_ACCEPTED"] = accepted
                names = list(cluster.services)
                for half in (names[::2], names[1::2]):
                    await asyncio.gather(*map(cluster.restart, half))
                    await wait_for_more_nodes(cluster)
            calling.cancel()
            await pause_and_check_cycles(client)
        logged = "".join(log.read_text(encoding="utf-8") for log in tmp_path.glob("*.log"))
        assert "this token is not known" not in logged
        async with cluster.client(token=OLD) as outdated:
            with pytest.raises(Unauthenticated):
                await outdated.who_am_i()


async def run_repeatedly(client: Client) -> None:
    """Run a flow by hand repeatedly, with a token that the servers ask access about."""
    await client.register_flow("asked", flow("asked"))
    while True:
        await (await client.run_flow("asked")).result()
