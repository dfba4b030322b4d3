"""Tradewind's side: each service in a process of its own, one worker process, and the client in this process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Coroutine, Iterator, Mapping
from importlib import metadata
from typing import Any, TypeVar

import uvloop

from benchmarks import processes
from benchmarks.measure import Result, Timing, cpu_seconds
from benchmarks.sides import SideFailed
from benchmarks.store import Store
from benchmarks.workloads import Shape, Workload
from tradewind.cli.bench import flows
from tradewind.client import Addresses, Client, TradewindError
from tradewind.server.redis.embedded import free_port

Answer = TypeVar("Answer")

_READY_S = 30.0
_SERVICES = ("registry", "trigger", "node_task_manager", "scheduler")
PROCESSES = ("store", *_SERVICES, "worker")
_FLOWS = {(Shape.CHAIN, False): 50, (Shape.CHAIN, True): 50, (Shape.FAN, False): 10, (Shape.SINGLE, False): 1000}
"""How many flows of each shape there are, by shape and whether their nodes are eager."""


@contextlib.contextmanager
def started(side: TradewindSide) -> Iterator[TradewindSide]:
    """Start a side and yield it; it stops with the context, or if it does not start."""
    try:
        side.start()
        yield side
    finally:
        side.stop()


class TradewindSide:
    """Four services, a worker and a client, deployed as usual, over one store or two: with two, one of them is the node
    task manager's."""

    name = "tradewind"

    def __init__(
        self,
        nodes: str = "tradewind.cli.bench.nodes",
        capacity: int = 100,
        environment: Mapping[str, str] | None = None,
        stores: int = 1,
    ) -> None:
        """Make the worker run the nodes of module `nodes`, up to `capacity` at a time, with `environment` set."""
        self._store_count = stores
        self._environment = environment or {}
        self._worker = [nodes, "--capacity", str(capacity)]
        self._stack = contextlib.ExitStack()
        self._runner: asyncio.Runner | None = None
        self.pids: dict[str, int] = {}
        self.client: Client
        """Known once the side has started."""
        self.store_url = ""
        self._sets: dict[tuple[Shape, bool], flows.FlowSet] = {}
        self._clients: list[Client] = []

    def start(self) -> Mapping[str, str]:
        stores = [self._stack.enter_context(Store()) for _ in range(self._store_count)]
        store, node_store = stores[0], stores[-1]
        log = self._stack.enter_context(tempfile.NamedTemporaryFile("w+", suffix=".log"))  # noqa: SIM115  the stack closes it
        ports = {service: free_port() for service in _SERVICES}
        addresses = {f"TRADEWIND_{name.upper()}_ADDRESS": f"127.0.0.1:{port}" for name, port in ports.items()}
        common = {"TRADEWIND_LOG_LEVEL": "warning", **addresses}
        self.store_url = store.url
        self.pids = {"store": store.pid, "node_store": node_store.pid, "client": os.getpid()}
        for service in _SERVICES:
            used = node_store if service == "node_task_manager" else store
            environment = {**common, "TRADEWIND_STORE_URL": used.url, "TRADEWIND_PORT": str(ports[service])}
            self._spawn(service, ["-m", f"tradewind.{service}"], environment, log)
        worker = ["-m", "tradewind.cli", "worker", *self._worker, "--id", "bench"]
        self._spawn("worker", worker, {**common, **self._environment}, log)
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        reached = Addresses(**{name: f"127.0.0.1:{port}" for name, port in ports.items() if name != "trigger"})
        try:
            self._runner.run(self._prepare(reached))
        except (TradewindError, TimeoutError) as error:
            log.seek(0)
            raise SideFailed(f"tradewind did not start: {error}\n{log.read()[-4000:]}") from error
        return {
            "Tradewind": metadata.version("tradewind"),
            "grpcio": metadata.version("grpcio"),
            "store": store.version,
        }

    def run(self, workload: Workload) -> Result:
        assert self._runner is not None, "start comes first"
        try:
            return self._runner.run(self._measure(workload))
        except (TradewindError, TimeoutError, flows.WrongAnswer) as error:
            raise SideFailed(f"tradewind, {workload.name}: {error}") from error

    def stop(self) -> None:
        if self._runner is not None:
            for client in self._clients:
                self._runner.run(client.close())
            self._runner.close()
            self._runner = None
        self._stack.close()

    def do(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Run a coroutine on the client's event loop."""
        assert self._runner is not None, "start comes first"
        return self._runner.run(work)

    def _spawn(self, name: str, command: list[str], environment: Mapping[str, str], log: object) -> None:
        process = processes.spawn([sys.executable, *command], environment=environment, stdout=log, stderr=log)  # type: ignore[arg-type]
        self.pids[name] = process.pid
        self._stack.callback(processes.end, process)

    async def _prepare(self, addresses: Addresses) -> None:
        self.client = client = Client(addresses=addresses)
        # single-1000 measures one call per run; other runs share a stream.
        calling = Client(addresses=addresses, run_stream=False)
        self._clients = [client, calling]
        deadline = time.monotonic() + _READY_S
        await client.wait_ready(_READY_S)
        while not [worker async for worker in client.list_workers()]:
            if time.monotonic() > deadline:
                raise TimeoutError("the worker did not register")
            await asyncio.sleep(0.05)
        for (shape, eager), count in _FLOWS.items():
            runner = calling if shape is Shape.SINGLE else client
            flow_set = flows.FlowSet(runner, flows.Shape(shape.value), count, eager=eager)
            await flow_set.register()
            self._sets[shape, eager] = flow_set

    async def _measure(self, workload: Workload) -> Result:
        flow_set = self._sets[workload.shape, workload.eager]

        def run(part: Workload) -> Awaitable[flows.Timing]:
            if part.bulk:
                return flow_set.run_bulk(part.flows, one_flow=part.one_flow)
            return flow_set.run(part.flows, part.in_flight)

        await run(workload.warming())
        before = cpu_seconds(self.pids.values())
        timing = await run(workload)
        spent = cpu_seconds(self.pids.values()) - before
        return Result.of(workload, Timing(timing.seconds, timing.flow_seconds), spent)
