"""The processes of the soak: store, every service with access on, a worker, and a crowd of idle connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import redis

from benchmarks import processes
from benchmarks.soak.nodes import LEAK_VARIABLE
from benchmarks.store import Store
from tradewind.client import Addresses
from tradewind.server.redis.embedded import free_port

SECRET = "a secret of all the servers"
SERVICES = ("access", "registry", "trigger", "node_task_manager", "scheduler")
NODES = "benchmarks.soak.nodes"
_RETENTION = {
    "NODE_TASK_MANAGER_RESULT_SECONDS": "60",
    "NODE_TASK_MANAGER_SETTLE_SECONDS": "5",
    "NODE_TASK_MANAGER_CLEAN_SECONDS": "1",
    "NODE_TASK_MANAGER_NOTIFICATIONS": "100",
}
"""Ended work is removed soon, so that the kept data does not grow during the soak."""


class SoakStack:
    """A context; `pids` holds the processes by name, including the store and this process."""

    def __init__(self, leak: int = 0) -> None:
        """Let the worker's nodes keep `leak` bytes each time they run."""
        self._leak = leak
        self._stack = contextlib.ExitStack()
        self._ports: dict[str, int] = {}
        self._environment: dict[str, str] = {}
        self._log: IO[str]
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self.pids: dict[str, int] = {}
        self._admin: redis.Redis

    def __enter__(self) -> SoakStack:
        store = self._stack.enter_context(Store())
        self._admin = self._stack.enter_context(redis.Redis(port=store.port))
        self._log = self._stack.enter_context(tempfile.NamedTemporaryFile("w+", suffix=".log"))
        self._ports = {service: free_port() for service in SERVICES}
        root = processes.ROOT
        self._environment = {
            **{f"TRADEWIND_{name.upper()}_ADDRESS": self.address(name) for name in SERVICES},
            **{f"TRADEWIND_{name}": value for name, value in _RETENTION.items()},
            "TRADEWIND_STORE_URL": store.url,
            "TRADEWIND_SERVICE_TOKEN": SECRET,
            "TRADEWIND_LOG_LEVEL": "error",
            "PYTHONPATH": os.pathsep.join(str(path) for path in (root / "libs", root / "services", root)),
            LEAK_VARIABLE: str(self._leak),
        }
        self.pids = {"store": store.pid, "load": os.getpid()}
        for service in SERVICES:
            self._spawn(service, f"tradewind.{service}", TRADEWIND_PORT=str(self._ports[service]))
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def address(self, service: str) -> str:
        """Return the address of a service."""
        return f"127.0.0.1:{self._ports[service]}"

    @property
    def addresses(self) -> Addresses:
        """The addresses of all services."""
        return Addresses(**{name: self.address(name) for name in SERVICES})

    def start_worker(self, token: str) -> None:
        """Start the worker that stays."""
        self._spawn("worker", "tradewind.cli", "worker", NODES, "--id", "resident", TRADEWIND_TOKEN=token)

    async def open_crowd(self, service: str, count: int) -> int:
        """Open idle connections to a service; return how many it accepted."""
        port = str(self._ports[service])
        crowd = self._spawn("crowd", "benchmarks.soak.crowd", "127.0.0.1", port, str(count), piped=True)
        return await asyncio.to_thread(self._read_count, crowd, "open")

    async def close_crowd(self) -> int:
        """Close the idle connections; return how many the service had closed before."""
        crowd = self._processes.pop("crowd")
        del self.pids["crowd"]
        assert crowd.stdin is not None
        crowd.stdin.close()
        return await asyncio.to_thread(self._read_count, crowd, "closed")

    def own_memory(self) -> dict[str, int]:
        """Return the anonymous memory of each process in bytes; for the store also how much it uses for data."""
        found = {name: _anonymous_memory(pid) for name, pid in self.pids.items()}
        info = self._admin.info("memory")
        assert isinstance(info, dict)
        return {"data": int(info["used_memory"]), **found}

    def check(self) -> None:
        """Raise RuntimeError, with the end of the log, when a process has ended."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise RuntimeError(f"{name} has ended with {process.returncode}:\n{self.log_tail()}")

    def log_tail(self) -> str:
        """Return the end of the log of all processes."""
        return Path(self._log.name).read_text(encoding="utf-8")[-4000:]

    def _spawn(
        self, name: str, module: str, *arguments: str, piped: bool = False, **more: str
    ) -> subprocess.Popen[str]:
        environment: Mapping[str, str] = {**self._environment, **more}
        process = processes.spawn(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
            stdout=subprocess.PIPE if piped else self._log,
            stderr=self._log,
            environment=environment,
        )
        self._processes[name] = process
        self.pids[name] = process.pid
        self._stack.callback(processes.end, process)
        return process

    def _read_count(self, crowd: subprocess.Popen[str], word: str) -> int:
        assert crowd.stdout is not None
        answer = crowd.stdout.readline().split()
        if answer[:1] != [word]:
            raise RuntimeError(f"the crowd said {answer} in place of {word}:\n{self.log_tail()}")
        return int(answer[1])


def _anonymous_memory(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"process {pid} has no memory of its own: it has ended")
