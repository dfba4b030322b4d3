"""Node task managers and workers as separate processes over a store, to be killed one by one."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import grpc

from tests.ports import free_port
from tests.servers import NEVER_HELD_BACK
from tests.system.node_task_manager.nodes import LEDGER, read_ledger
from tests.waiting import until
from tradewind.node_task_manager.stores.keys import ACL
from tradewind.server.redis.acl import ADMIN
from tradewind.server.redis.client import connect
from tradewind.server.redis.embedded import EmbeddedStore

PATIENCE_S = 60
"""How long a step may take on a busy machine."""
ROOT = Path(__file__).parents[3]
PATHS = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
NODES = "tests.system.node_task_manager.nodes"


class Process:
    """A Python process whose output goes to a file."""

    def __init__(self, log: Path, *arguments: str, **environment: str) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": PATHS, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to exactly this process."""
        self._process.send_signal(number)

    async def wait_for_exit(self) -> int:
        """Wait until the process has ended, and return its exit code."""
        await until(lambda: self._process.poll() is not None, f"{self.log.name} has ended", timeout=PATIENCE_S)
        return self._process.returncode

    async def kill(self) -> None:
        """Kill the process, as a crash would."""
        self.signal(signal.SIGKILL)
        await self.wait_for_exit()

    async def wait_for_output(self, text: str) -> None:
        """Wait until the process has printed a text."""
        try:
            await until(
                lambda: text in self.output or self._process.poll() is not None,
                f"{self.log.name} says {text!r}",
                timeout=PATIENCE_S,
            )
        except AssertionError as error:
            raise AssertionError(f"{error}; it says:\n{self.output}") from None
        assert text in self.output, f"ended with {self._process.poll()}:\n{self.output}"

    @property
    def output(self) -> str:
        """The output so far."""
        return self.log.read_text(encoding="utf-8")

    def close(self) -> None:
        """End the process, whatever state it is in."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(timeout=10)


class Stack:
    """One store, and whatever else a test starts; `registry` is where workers register."""

    def __init__(self, home: Path, registry: str) -> None:
        self.home = home
        self.store = EmbeddedStore(home / "store", port=free_port(), acl_users=[ACL], options=NEVER_HELD_BACK)
        self.ledger = home / "ledger"
        self._registry = registry
        self._processes: list[Process] = []

    async def node_task_manager(self, *, port: int = 0, store_url: str = "", **settings: object) -> tuple[Process, str]:
        """Start a node task manager and return it with its address; leases last 10 s unless `settings` say otherwise.

        It connects to the store at `store_url`, if given.
        """
        port = port or free_port()
        environment = {
            "TRADEWIND_STORE_URL": store_url or self.store.url_for(ACL.name),
            "TRADEWIND_PORT": str(port),
            "TRADEWIND_REGISTRY_ADDRESS": self._registry,
            "TRADEWIND_NODE_TASK_MANAGER_LEASE_SECONDS": "10",
            "TRADEWIND_NODE_TASK_MANAGER_STREAM_GRACE_SECONDS": "0.5",
            **{f"TRADEWIND_NODE_TASK_MANAGER_{name.upper()}": str(value) for name, value in settings.items()},
        }
        process = self._start(f"node-task-manager-{port}", "tradewind.node_task_manager", **environment)
        await process.wait_for_output("serving")
        return process, f"127.0.0.1:{port}"

    async def worker(self, name: str, address: str, capacity: int = 20) -> Process:
        """Start a worker; return once it is connected."""
        process = self.start_worker(name, address, capacity)
        await process.wait_for_output("connected as")
        return process

    def start_worker(self, name: str, address: str, capacity: int = 20) -> Process:
        """Start a worker without waiting for it."""
        # fmt: off
        return self._start(
            name, "tradewind.cli", "worker", NODES, "--id", name, "--capacity", str(capacity), "--grace", "5",
            TRADEWIND_ADDRESS=address, TRADEWIND_REGISTRY_ADDRESS=self._registry, **{LEDGER: str(self.ledger)},
        )
        # fmt: on

    async def kill_store(self) -> None:
        """Kill the store, as a crash would."""
        pid = self.store.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await self.store.stop()

    async def restart_store(self) -> None:
        """Start the store again on the same port, with the data that it had written."""
        await self.store.start()

    def url_through(self, port: int) -> str:
        """Return the URL with which a node task manager reaches the store through a proxy on this port."""
        return self.store.url_for(ACL.name).replace(f":{self.store.port}", f":{port}")

    async def as_admin(self, *command: str) -> Any:
        """Run a command of the store."""
        client = connect(self.store.url_for(ADMIN), max_connections=1)
        try:
            return await client.execute_command(*command)
        finally:
            await client.end()

    def recorded(self, event: str) -> Counter[tuple[str, int]]:
        """Return how often the ledger notes each (node task, attempt) as `begun` or `done`."""
        return Counter((key, int(attempt)) for key, attempt, recorded in read_ledger(self.ledger) if recorded == event)

    async def close(self) -> None:
        """End everything."""
        for process in self._processes:
            process.close()
        await self.store.stop()

    def _start(self, name: str, *arguments: str, **environment: str) -> Process:
        process = Process(self.home / f"{name}.log", *arguments, **environment)
        self._processes.append(process)
        return process


async def retry_until_answered(call: Any) -> Any:
    """Repeat a call until it succeeds; `call()` returns the awaitable."""
    answers: list[Any] = []

    async def answered() -> bool:
        try:
            answers.append(await call())
        except grpc.aio.AioRpcError as error:
            if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise
            await asyncio.sleep(0.05)
        return bool(answers)

    await until(answered, "the call is answered", timeout=PATIENCE_S)
    return answers[0]
