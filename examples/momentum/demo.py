"""`make demo`: all services over an embedded store, a worker, and the momentum flow for eight cycles of real prices."""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from tradewind.client import Client, CycleFailed, CycleRecord
from tradewind.standalone import Standalone

CYCLES = 8
PATIENCE_S = 60.0
FLOW = Path(__file__).with_name("flow.json")


@asynccontextmanager
async def running_worker(address: str, ledger: Path) -> AsyncIterator[None]:
    """Run the example's nodes in a process of their own, as `tradewind worker examples.momentum.nodes` does."""
    environment = {**os.environ, "MOMENTUM_LEDGER": str(ledger), "TRADEWIND_ADDRESS": address}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tradewind.cli",
        "worker",
        "examples.momentum.nodes",
        env=environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def ended_cycles(client: Client) -> AsyncIterator[CycleRecord]:
    """Yield the flow's first cycles in the order of their numbers, each when it has ended."""
    ended: dict[int, CycleRecord] = {}
    following = 0
    async for cycle in client.flow("momentum").watch():
        if cycle.ended:
            ended[cycle.cycle] = cycle
        elif cycle.cycle > following and following not in ended:
            ended[following] = await client.cycle("momentum", following).wait(PATIENCE_S)
        while following in ended:
            yield ended.pop(following)
            following += 1
            if following == CYCLES:
                return


def decision(report: dict[str, Any], breadth: dict[str, int]) -> str:
    """Describe a cycle's decision in one line."""
    traded = ", ".join(report["traded"]) or "nothing to trade, held " + ", ".join(report["held"])
    return f"{report['month']}  {breadth['rose']} of {breadth['of']} rose; {traded}"


async def main() -> int:
    """Run the demonstration and return the exit code."""
    console = Console(highlight=False)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tradewind-demo-") as home:
        async with (
            Standalone(data=Path(home) / "store", port=0) as stack,
            running_worker(stack.address, Path(home) / "ledger.jsonl"),
            Client(stack.address) as client,
        ):
            console.print(f"Tradewind is up at {stack.address} with an embedded store; a worker is starting.")
            while not [worker async for worker in client.list_workers()]:
                if time.monotonic() - began > PATIENCE_S:
                    console.print("[red]the worker did not register[/red]")
                    return 1
                await asyncio.sleep(0.05)
            registered = await client.register_flow("momentum", FLOW)
            console.print(
                f"Registered momentum: {len(registered.flow.components)} components. Starting it, a cycle a second.\n"
            )
            await client.flow("momentum").start()
            async with asyncio.timeout(PATIENCE_S):
                rows = await show(client, console)
            await client.flow("momentum").stop()
    console.print(summary(rows))
    failed = CYCLES - len(rows)
    console.print(f"\n{CYCLES} cycles, {failed} failed, in {time.monotonic() - began:.1f} s.")
    return 1 if failed else 0


async def show(client: Client, console: Console) -> list[tuple[CycleRecord, dict[str, Any], dict[str, int]]]:
    """Follow the cycles, with a progress bar on a terminal; return each that completes, with its report."""
    rows = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        bar = progress.add_task("momentum", total=CYCLES)
        async for cycle in ended_cycles(client):
            progress.advance(bar)
            try:
                outputs = await client.cycle("momentum", cycle.cycle).result(PATIENCE_S)
            except CycleFailed as failure:
                console.print(f"[red]{escape(str(failure))}[/red]", soft_wrap=True)
                continue
            report, breadth = outputs["report"]["report"], outputs["breadth"]["breadth"]
            console.print(f"cycle {cycle.cycle}  {cycle.status:<9}  {decision(report, breadth)}", soft_wrap=True)
            rows.append((cycle, report, breadth))
    return rows


def summary(rows: list[tuple[CycleRecord, dict[str, Any], dict[str, int]]]) -> Table:
    """Return a table of the cycles' results."""
    table = Table(title="\nmomentum, a month per cycle", title_justify="left")
    for name in ("cycle", "month", "trades", "cash", "value", "nodes", "ms"):
        table.add_column(name, justify="left" if name == "month" else "right")
    for cycle, report, _ in rows:
        counts = cycle.counts
        table.add_row(
            str(cycle.cycle),
            report["month"],
            str(len(report["traded"])),
            f"{report['cash']:,.2f}",
            f"{report['value']:,.2f}",
            f"{counts.completed} run, {counts.skipped} skipped",
            f"{(cycle.seconds or 0) * 1000:.0f}",
        )
    return table


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
