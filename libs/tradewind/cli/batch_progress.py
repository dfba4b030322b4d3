"""A batch as it runs: a live bar at a terminal, occasional lines in a pipe, or JSON lines."""

import time
from contextlib import aclosing

from tradewind.cli.screen import STYLES, Format, Screen, length
from tradewind.client import BatchHandle, BatchProgress, BatchRecord

_LINE_EVERY_S = 2.0


async def show_progress(screen: Screen, handle: BatchHandle, output: Format) -> BatchRecord:
    """Show a batch until its end, and return it."""
    if output is Format.JSON:
        return await _json_lines(screen, handle)
    batch = await (_bar(screen, handle) if screen.shows_bars else _lines(screen, handle))
    took = f" in {length(batch.seconds)}" if batch.seconds is not None else ""
    screen.line(f"batch {batch.batch_id} {batch.status}{took}: {counts_text(batch.progress)}", STYLES.get(batch.status))
    return batch


def counts_text(progress: BatchProgress) -> str:
    """Return `97 completed (90 cached), 2 failed, 1 running of 100`."""
    numbers = {
        f"completed ({progress.cached} cached)" if progress.cached else "completed": progress.completed,
        "failed": progress.failed,
        "cancelled": progress.cancelled,
        "running": progress.running,
        "queued": progress.queued,
    }
    return ", ".join(f"{number} {word}" for word, number in numbers.items() if number) + f" of {progress.total}"


async def _json_lines(screen: Screen, handle: BatchHandle) -> BatchRecord:
    async with aclosing(handle.watch()) as states:
        async for batch in states:
            screen.json_line(batch)
    return batch


async def _lines(screen: Screen, handle: BatchHandle) -> BatchRecord:
    """Print a line at the start, then at most one every 2 s; the caller reports the end."""
    last_line_at = -_LINE_EVERY_S
    async with aclosing(handle.watch()) as states:
        async for batch in states:
            if not batch.ended and time.monotonic() - last_line_at >= _LINE_EVERY_S:
                last_line_at = time.monotonic()
                screen.line(f"batch {batch.batch_id} {batch.progress.percent:.0f} %: {counts_text(batch.progress)}")
    return batch


async def _bar(screen: Screen, handle: BatchHandle) -> BatchRecord:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("[dim]{task.fields[note]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=screen.console, transient=True) as bars:
        bar = bars.add_task(f"batch {handle.batch_id}", total=None, note="")
        async with aclosing(handle.watch()) as states:
            async for batch in states:
                progress = batch.progress
                note = f"{progress.running} running" if progress.running else "waiting"
                if progress.cached:
                    note += f", {progress.cached} cached"
                if progress.failed:
                    note += f", {progress.failed} failed"
                bars.update(bar, completed=progress.ended, total=progress.total, note=note)
    return batch
