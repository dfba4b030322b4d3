"""A side's own store: an embedded Valkey on a free loopback port, append-only file flushed every second."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from benchmarks import processes
from tradewind.server.redis.allocator import JEMALLOC, allocator, has_jemalloc
from tradewind.server.redis.client import Client
from tradewind.server.redis.embedded import ENCODINGS, find_server, free_port

SETTINGS = ", ".join(
    (
        "appendonly yes, appendfsync everysec, no snapshots, noeviction, loopback TCP",
        *(f"{name.removeprefix('--')} {value}" for name, value in zip(ENCODINGS[::2], ENCODINGS[1::2], strict=True)),
        f"{JEMALLOC} preloaded" if has_jemalloc() else "the allocator of its build",
    )
)

_READY_WITHIN_S = 10.0
_POLL_S = 0.02
_PIPELINE = 5000


class Store:
    """A running store, empty at first; its data is removed when it stops. Use it as a context or call `stop`."""

    def __init__(self) -> None:
        """Start the store and return when it answers; raises RuntimeError with its log if that takes more than 10 s."""
        self._directory = Path(tempfile.mkdtemp(prefix="tradewind-bench-"))
        self._log = self._directory / "store.log"
        self.port = free_port()
        with self._log.open("w") as log:
            self._process = processes.spawn(
                self._command(), stdout=log, stderr=subprocess.STDOUT, environment=allocator()
            )
        try:
            self.version = self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """End the store and remove its data; a second call does nothing."""
        processes.end(self._process)
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _command(self) -> list[str]:
        return [
            *(str(find_server()), "--port", str(self.port), "--bind", "127.0.0.1"),
            *("--dir", str(self._directory), "--appendonly", "yes", "--appendfsync", "everysec"),
            *("--save", "", "--maxmemory-policy", "noeviction"),
            *ENCODINGS,
        ]

    def _wait_until_ready(self) -> str:
        deadline = time.monotonic() + _READY_WITHIN_S
        with redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0), decode_responses=True) as client:
            while True:
                try:
                    facts = client.info("server")
                except (redis.ConnectionError, redis.TimeoutError):
                    if self._process.poll() is not None or time.monotonic() > deadline:
                        raise RuntimeError(f"the store did not start:\n{self._log.read_text()}") from None
                    time.sleep(_POLL_S)
                    continue
                assert isinstance(facts, dict)
                if "valkey_version" in facts:
                    return f"Valkey {facts['valkey_version']}"
                return f"Redis {facts['redis_version']}"


async def send(client: Client, commands: Iterable[tuple[Any, ...]]) -> None:
    """Send commands to a store, 5000 at a time."""
    left = iter(commands)
    while batch := list(itertools.islice(left, _PIPELINE)):
        pipeline = client.pipeline(transaction=False)
        for command in batch:
            pipeline.execute_command(*command)
        await pipeline.execute()
