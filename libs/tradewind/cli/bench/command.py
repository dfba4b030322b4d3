"""`tradewind bench`: runs no-op flows against a running stack and prints what a client sees."""

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

from rich.table import Table

from tradewind.cli.bench.flows import FlowSet, Shape, Timing
from tradewind.cli.session import Session
from tradewind.client import Client, TimedOut
from tradewind.codec.loading import CODEC_VARIABLE
from tradewind.grpc_engine.bearer import TOKEN_VARIABLE

_PATIENCE_S = 10.0
_WORKER_WITHIN_S = 20.0
_WORKER_ID = "bench"


@dataclass(frozen=True, slots=True)
class Workload:
    """`flows` runs of flows of one shape, `in_flight` at once (0: all in one call), spread over `registered` flows.

    With `eager` nodes, a worker continues to the next node by itself.
    """

    name: str
    shape: Shape
    flows: int
    in_flight: int
    registered: int
    eager: bool = False


WORKLOADS = (
    Workload("chain-1", Shape.CHAIN, 100, 1, 1),
    Workload("chain-1-eager", Shape.CHAIN, 100, 1, 1, eager=True),
    Workload("chain-50", Shape.CHAIN, 500, 50, 50),
    Workload("chain-50-eager", Shape.CHAIN, 500, 50, 50, eager=True),
    Workload("fan-1", Shape.FAN, 10, 1, 1),
    Workload("fan-10", Shape.FAN, 40, 10, 10),
    Workload("single-1000", Shape.SINGLE, 1000, 50, 1000),
    Workload("single-1000-bulk", Shape.SINGLE, 1000, 0, 1000),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of one workload: nodes and flows per second, and the median flow's time per node on its path."""

    workload: str
    flows: int
    nodes_per_second: float
    flows_per_second: float
    hop_p50_ms: float


async def bench(session: Session, names: Sequence[str], scale: float) -> list[Measured]:
    """Run the named workloads, or all without names, with a worker of their own; delete the flows afterwards."""
    console = session.screen.console
    selected = [workload for workload in WORKLOADS if not names or workload.name in names]
    results = []
    # single-1000 measures one call per run; runs of other shapes share a stream.
    async with (
        session.client(patience=_PATIENCE_S) as client,
        session.client(patience=_PATIENCE_S, run_stream=False) as calling,
        _own_worker(session, client),
    ):
        for workload in selected:
            flows = max(1, round(workload.flows * scale))
            runner = calling if workload.shape is Shape.SINGLE else client
            flow_set = FlowSet(runner, workload.shape, min(workload.registered, flows), eager=workload.eager)
            await flow_set.register()
            try:
                await flow_set.run(min(flows, 20), min(workload.in_flight or 20, 20))
                timing = await (
                    flow_set.run(flows, workload.in_flight) if workload.in_flight else flow_set.run_bulk(flows)
                )
            finally:
                await flow_set.delete()
            results.append(_measured(workload, flows, timing))
            if console.is_terminal:
                console.print(f"{workload.name}: {results[-1].nodes_per_second:,.0f} nodes/s")
    return results


def table(results: Sequence[Measured]) -> Table:
    """Return the results as a table for people."""
    shown = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("workload", "flows", "nodes/s", "flows/s", "ms per hop, p50"):
        shown.add_column(name, justify="left" if name == "workload" else "right")
    for each in results:
        shown.add_row(
            each.workload,
            str(each.flows),
            f"{each.nodes_per_second:,.0f}",
            f"{each.flows_per_second:,.0f}",
            f"{each.hop_p50_ms:.2f}",
        )
    return shown


def _measured(workload: Workload, flows: int, timing: Timing) -> Measured:
    return Measured(
        workload.name,
        flows,
        flows * workload.shape.nodes / timing.seconds,
        flows / timing.seconds,
        statistics.median(timing.flow_seconds) * 1000 / workload.shape.hops,
    )


@asynccontextmanager
async def _own_worker(session: Session, client: Client) -> AsyncIterator[None]:
    """Run the no-op nodes in a process of their own."""
    process = _spawn(worker_command(session), {**os.environ, **worker_environment(session)})
    try:
        deadline = time.monotonic() + _WORKER_WITHIN_S
        while not [each async for each in client.list_workers() if each.worker_id.startswith(_WORKER_ID)]:
            if time.monotonic() > deadline:
                raise TimedOut("the benchmark's worker did not register: is the stack running?")
            await asyncio.sleep(0.05)
        yield
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)


def worker_command(session: Session) -> list[str]:
    """Return the arguments that start the worker; every user of the machine can read them, so they hold no token."""
    command = ["-m", "tradewind.cli"]
    if session.address:
        command.append(f"--address={session.address}")
    files = asdict(session.tls) if session.tls is not None else {}
    command += [f"--tls-{name.replace('_', '-')}={value}" for name, value in files.items() if value]
    return [*command, "worker", "tradewind.cli.bench.nodes", "--id", f"{_WORKER_ID}-{os.getpid()}", "--capacity", "400"]


def worker_environment(session: Session) -> dict[str, str]:
    """Return the environment variables that give the worker the session's token and codec."""
    known = {TOKEN_VARIABLE: session.token, CODEC_VARIABLE: session.codec_name}
    return {name: value for name, value in known.items() if value}


def _spawn(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    # Not through the event loop: uvloop forks, which gRPC's threads may not survive, whereas this is a vfork.
    return subprocess.Popen(
        [sys.executable, *command],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
