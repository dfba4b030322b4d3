"""Every service as separate processes over one store, with as many replicas as a test wants; each can be killed."""

import asyncio
import os
import signal
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from tests.ports import free_port
from tests.servers import ACL_USERS, NEVER_HELD_BACK
from tests.system.node_task_manager.nodes import LEDGER, read_ledger
from tests.system.node_task_manager.stack import NODES, Process
from tests.system.replicas.failover import FailoverStore
from tradewind.client import Client
from tradewind.client.addresses import Addresses
from tradewind.server.redis.embedded import EmbeddedStore
from tradewind.tls import TlsFiles

LEASE_S = 2.0


class Cluster:
    """`schedulers` and `node_task_managers` replicas, one registry, one trigger service, `workers` workers.

    With `accesses` replicas of access, calls need a token, or the certificate of a server or of a worker.
    """

    def __init__(
        self,
        home: Path,
        *,
        schedulers: int = 1,
        node_task_managers: int = 1,
        workers: int = 1,
        accesses: int = 0,
        store: FailoverStore | None = None,
        tls: TlsFiles | None = None,
        workers_tls: TlsFiles | None = None,
        roles: str = "",
    ) -> None:
        """With `tls`, all processes use these certificates, except that workers use `workers_tls` if given.

        `roles` maps names in certificates to roles.
        """
        self.home = home
        self.environment: dict[str, str] = {}
        """Additional environment of processes that start from now on."""
        self._tls = tls
        self._workers_tls = workers_tls or tls
        self._roles = roles
        self.ledger = home / "ledger"
        self.store = store or EmbeddedStore(
            home / "store", port=free_port(), acl_users=ACL_USERS, options=NEVER_HELD_BACK
        )
        names = [f"scheduler-{at}" for at in range(schedulers)]
        names += [f"node_task_manager-{at}" for at in range(node_task_managers)]
        names += [f"access-{at}" for at in range(accesses)]
        self.services = {name: free_port() for name in ["registry-0", "trigger-0", *names]}
        self.workers = [f"worker-{at}" for at in range(workers)]
        self._running: dict[str, Process] = {}

    async def start(self) -> None:
        """Start everything; return when all services serve and all workers are connected."""
        await self.store.start()
        await asyncio.gather(*(self.start_process(name) for name in (*self.services, *self.workers)))

    async def start_process(self, name: str) -> None:
        """Start a process of this name, on the same port as its predecessor."""
        log = self.home / f"{name}-{len(list(self.home.glob(f'{name}-*')))}.log"
        if name in self.workers:
            # fmt: off
            process = Process(
                log, "tradewind.cli", "worker", NODES, "--id", name, "--capacity", "20", "--grace", "5",
                **self._addresses(), **{LEDGER: str(self.ledger)}, **_certificates(self._workers_tls),
                **self.environment,
            )
            # fmt: on
        else:
            process = Process(log, f"tradewind.{name.partition('-')[0]}", **self._settings(name))
        self._running[name] = process
        await process.wait_for_output("connected as" if name in self.workers else "serving")

    async def kill(self, name: str) -> None:
        """Kill a process, as a crash would."""
        await self._running.pop(name).kill()

    async def restart(self, name: str) -> None:
        """End a process as an upgrade does, and start it again once it has ended."""
        process = self._running.pop(name)
        process.signal(signal.SIGTERM)
        try:
            assert await process.wait_for_exit() == 0, process.output
        finally:
            process.close()
        await self.start_process(name)

    async def restart_store(self) -> None:
        """Kill the store and start it again with the data that it had written."""
        assert isinstance(self.store, EmbeddedStore)
        pid = self.store.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await self.store.stop()
        await self.store.start()

    def client(self, tls: TlsFiles | None = None, token: str | None = None) -> Client:
        """Return a client that uses any replica that answers; by default it shows the servers' certificate."""
        where = Addresses(*map(self.address, ("scheduler", "registry", "node_task_manager", "trigger", "access")))
        return Client(addresses=where, patience=60, credentials=tls or self._tls, token=token)

    def address(self, service: str) -> str:
        """Return the address of a service, covering all its replicas."""
        ports = [port for name, port in self.services.items() if name.startswith(f"{service}-")]
        return "ipv4:" + ",".join(f"127.0.0.1:{port}" for port in ports) if ports else ""

    def recorded(self, event: str) -> Counter[str]:
        """Return how often the ledger notes each node task as `begun` or `done`."""
        return Counter(key for key, _, recorded in read_ledger(self.ledger) if recorded == event)

    async def close(self) -> None:
        """End everything."""
        for process in self._running.values():
            process.close()
        await self.store.stop()

    def _addresses(self) -> dict[str, str]:
        return {
            f"TRADEWIND_{each.upper()}_ADDRESS": self.address(each)
            for each in ("scheduler", "registry", "node_task_manager", "trigger", "access")
            if self.address(each)
        }

    def _settings(self, name: str) -> dict[str, str]:
        service = name.partition("-")[0]
        return {
            **self._addresses(),
            **_certificates(self._tls),
            "TRADEWIND_TLS_ROLES": self._roles,
            "TRADEWIND_ACCESS_CACHE_SECONDS": "0.2",
            "TRADEWIND_TLS_REQUIRE_CLIENT_CERT": str(int(self._tls is not None)),
            "TRADEWIND_STORE_URL": self.store.url_for(service),
            "TRADEWIND_PORT": str(self.services[name]),
            "TRADEWIND_SCHEDULER_LEASE_SECONDS": str(LEASE_S),
            "TRADEWIND_SCHEDULER_CHECK_IN_SECONDS": "1",
            "TRADEWIND_SCHEDULER_RECONCILE_SECONDS": "2",
            "TRADEWIND_TRIGGER_LEASE_SECONDS": "3",
            "TRADEWIND_NODE_TASK_MANAGER_LEASE_SECONDS": "30",
            "TRADEWIND_NODE_TASK_MANAGER_STREAM_GRACE_SECONDS": "0.5",
            **self.environment,
        }


def _certificates(files: TlsFiles | None) -> dict[str, str]:
    named = asdict(files) if files is not None else {}
    return {f"TRADEWIND_TLS_{name.upper()}": str(value) for name, value in named.items() if value}
