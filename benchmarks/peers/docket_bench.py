"""The workloads on pydocket: two worker processes, concurrency 40, 10 ms resolution, otherwise with its defaults."""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import metadata
from typing import Any

from docket import Docket

from benchmarks import processes
from benchmarks.measure import Timing
from benchmarks.peers import docket_app, session
from benchmarks.workloads import CHAIN_LENGTH, FLOW_TIMEOUT_S, Shape, Workload

WORKERS = 2

_START = Workload("start", Shape.SINGLE, flows=40, in_flight=40, warm_up=0)
_COLLECT = 100
_BLOCK_S = 1


class DocketPeer:
    """Docket's client; its event loop does not run between workloads."""

    versions: Mapping[str, str] = {"pydocket": metadata.version("pydocket"), "redis-py": metadata.version("redis")}

    def __init__(self, runner: asyncio.Runner, docket: Docket) -> None:
        self._runner = runner
        self._docket = docket

    def run(self, workload: Workload) -> Timing:
        return self._runner.run(_Run(self._docket, workload).drive())


class _Run:
    """One run of a workload: a task for each flow that waits its turn, and one that collects the ends of flows."""

    def __init__(self, docket: Docket, workload: Workload) -> None:
        self._docket = docket
        self._workload = workload
        self._open: dict[str, asyncio.Future[float]] = {}

    async def drive(self) -> Timing:
        """Run all flows; raises like `session.Peer.run`."""
        workload = self._workload
        collector = asyncio.create_task(self._collect())
        try:
            started = time.perf_counter()
            flows = asyncio.ensure_future(self._run_all() if workload.bulk else self._run_each())
            # If the collector ends before the flows, it has failed: raise its error, not a timeout.
            done, _ = await asyncio.wait(
                {flows, collector}, timeout=FLOW_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED
            )
            if flows not in done:
                flows.cancel()
                if collector in done:
                    collector.result()
                raise TimeoutError(f"{workload.name}: {len(self._open)} flows open after {FLOW_TIMEOUT_S:.0f} s")
            flow_seconds = flows.result()
            return Timing(time.perf_counter() - started, flow_seconds)
        finally:
            collector.cancel()
            await asyncio.gather(collector, return_exceptions=True)

    async def _run_each(self) -> list[float]:
        turns = asyncio.Semaphore(self._workload.in_flight)

        async def one(flow: str) -> float:
            async with turns:
                began = time.perf_counter()
                ended = self._expect(flow)
                function, arguments = self._call(flow)
                await self._docket.add(function)(*arguments)
                return await ended - began

        return await asyncio.gather(*(one(str(index)) for index in range(self._workload.flows)))

    async def _run_all(self) -> list[float]:
        began = time.perf_counter()
        calls = [(self._expect(str(index)), *self._call(str(index))) for index in range(self._workload.flows)]
        await self._docket.add_many(self._docket.call(function)(*arguments) for _, function, arguments in calls)
        return [await ended - began for ended, _, _ in calls]

    def _expect(self, flow: str) -> asyncio.Future[float]:
        ended: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._open[flow] = ended
        return ended

    def _call(self, flow: str) -> tuple[Any, tuple[Any, ...]]:
        match self._workload.shape:
            case Shape.CHAIN:
                return docket_app.link, (flow, {"n": 0}, CHAIN_LENGTH - 1)
            case Shape.FAN:
                return docket_app.source, (flow, {"n": 0})
            case Shape.SINGLE:
                return docket_app.link, (flow, {"n": 0}, 0)

    async def _collect(self) -> None:
        """Take the ends of flows off the list and give each flow its time; raises ValueError for a wrong answer."""
        async with self._docket.redis() as redis:
            while True:
                popped = await redis.blmpop(_BLOCK_S, 1, docket_app.ENDED, direction="LEFT", count=_COLLECT)
                now = time.perf_counter()
                for text in popped[1] if popped else ():
                    flow, value = json.loads(text)
                    self._workload.check(value["n"])
                    self._open.pop(flow).set_result(now)


@contextmanager
def start(store_urls: Sequence[str]) -> Iterator[DocketPeer]:
    """Start Docket's client, and its workers as processes that have run tasks; all end with the context."""
    (store_url,) = store_urls
    with ExitStack() as stack:
        for _ in range(WORKERS):
            command = [sys.executable, "-m", docket_app.__name__, store_url]
            worker = processes.spawn(command, stdout=sys.stderr.fileno())
            stack.callback(processes.end, worker)
        runner = stack.enter_context(asyncio.Runner())
        docket = Docket(name=docket_app.NAME, url=store_url)
        runner.run(docket.__aenter__())
        stack.callback(lambda: runner.run(docket.__aexit__(None, None, None)))
        peer = DocketPeer(runner, docket)
        peer.run(_START)
        yield peer


if __name__ == "__main__":
    session.serve(start)
