"""`python -m examples.screening.demo`: runs a whole stack, and one batch over real share prices, twice."""

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from examples.screening.items import items, parse_arguments
from examples.screening.nodes import screen_share
from tradewind.client import BatchHandle, BatchRecord, Client
from tradewind.standalone import Standalone
from tradewind.worker import Worker

PATIENCE_S = 60.0


async def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration and return the exit code."""
    batch_items = items(**parse_arguments(arguments))
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="tradewind-demo-") as home:
        async with (
            Standalone(data=Path(home) / "store", port=0) as stack,
            Worker([screen_share], address=stack.address),
            Client(stack.address) as client,
        ):
            for again in (False, True):
                handle = await client.submit_batch("screen_share", batch_items, cache="screening")
                console.print(
                    f"Batch {handle.batch_id}: {len(batch_items)} items, "
                    + ("the same once more." if again else "one for each share and month.")
                )
                async with asyncio.timeout(PATIENCE_S):
                    batch = await follow(handle, console)
                if not again:
                    console.print(summary([outputs["verdict"] for outputs in await handle.result(PATIENCE_S)]))
                console.print(ending(batch))
    return 0


def ending(batch: BatchRecord) -> str:
    """Describe how a batch has ended."""
    progress = batch.progress
    cached = f", {progress.cached} of them from the cache" if progress.cached else ""
    return f"\n{progress.completed} of {progress.total} items completed{cached} in {batch.seconds:.1f} s.\n"


async def follow(handle: BatchHandle, console: Console) -> BatchRecord:
    """Follow the batch to its end, with a progress bar on a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bars:
        bar = bars.add_task("screening", total=None)
        async for batch in handle.watch():
            bars.update(bar, completed=batch.progress.ended, total=batch.progress.total)
    return batch


def summary(verdicts: Sequence[Mapping[str, Any]]) -> Table:
    """Return, by share, how often it passed, when it passed last, and with which figures."""
    passed = [verdict for verdict in verdicts if verdict["passed"]]
    judged, often = (Counter(verdict["share"] for verdict in some) for some in (verdicts, passed))
    last = {verdict["share"]: verdict for verdict in passed}
    table = Table(title="\nwho passed", title_justify="left")
    table.add_column("share")
    for name in ("passed", "last", "momentum", "volatility", "drawdown"):
        table.add_column(name, justify="right")
    for share in sorted(judged, key=lambda each: (-often[each], each)):
        latest = last.get(share)
        figures = [f"{latest[name]:.1%}" for name in ("momentum", "volatility", "drawdown")] if latest else ["-"] * 3
        table.add_row(share, f"{often[share]} of {judged[share]}", latest["until"] if latest else "-", *figures)
    return table


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
