"""`tradewind batch ...`: one node type run many times."""

from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli.failures import FAILED, fail
from tradewind.cli.parameters import (
    Attempts,
    CacheName,
    ConcurrencyText,
    Newest,
    NodeTypeName,
    Output,
    Priority,
    RateText,
    ReasonOption,
    RequestId,
    RequireWorker,
    Yes,
    only_in_status,
    take,
)
from tradewind.cli.parsing import parse_concurrency, parse_rate, parse_statuses
from tradewind.cli.screen import STYLES, Format, Screen, counted, length
from tradewind.cli.session import Session, asynchronous

if TYPE_CHECKING:
    from tradewind.client import BatchHandle, BatchRecord, NodeTaskRecord

app = typer.Typer(no_args_is_help=True, help="Run one node type many times.", rich_markup_mode=None)

BatchId = Annotated[str, typer.Argument(metavar="BATCH", help="Id of the batch.")]


@app.command()
@asynchronous
async def submit(
    session: Session,
    node_type: NodeTypeName,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="File with the parameters of each item, one JSON object per line; - reads stdin."
        ),
    ],
    watch: Annotated[bool, typer.Option("--watch", help="Show the progress of the batch until it has ended.")] = False,
    require_worker: RequireWorker = False,
    attempts: Attempts = 1,
    priority: Priority = 0,
    concurrency: ConcurrencyText = None,
    rate: RateText = None,
    cache: CacheName = None,
    request_id: RequestId = None,
    output: Output = Format.TEXT,
) -> None:
    """Run a node type once for each line of a file.

    Either all items are accepted, or none. With --watch, exits with 1 unless all of them complete.
    """
    from tradewind.cli.batch_items import read_items
    from tradewind.flow import Retry

    items = read_items(file)
    async with session.client() as client:
        handle = await client.submit_batch(
            node_type,
            items,
            require_worker=require_worker,
            retry=Retry(attempts) if attempts > 1 else None,
            priority=priority,
            concurrency=parse_concurrency(concurrency),
            rate=parse_rate(rate),
            cache=cache,
            request_id=request_id,
        )
        session.screen.notes(handle.warnings if output is Format.TEXT else ())
        if watch:
            client.patience = session.patience
            await _watch(session, handle, output)
        elif output is Format.JSON:
            session.screen.json({"batch": handle.record, "warnings": handle.warnings})
        else:
            session.screen.line(f"submitted batch {handle.batch_id}: {counted(len(items), 'item')}")


@app.command()
@asynchronous
async def watch(session: Session, batch_id: BatchId, output: Output = Format.TEXT) -> None:
    """Show the progress of a batch until it has ended.

    Exits with 1 unless all of its items complete.
    """
    async with session.client() as client:
        handle = client.batch(batch_id)
        await handle.get()
        client.patience = session.patience
        await _watch(session, handle, output)


@app.command()
@asynchronous
async def show(session: Session, batch_id: BatchId, output: Output = Format.TEXT) -> None:
    """Show the status and progress of a batch."""
    async with session.client() as client:
        session.screen.show(output, await client.get_batch(batch_id), _describe)


def _describe(screen: Screen, batch: "BatchRecord") -> None:
    progress = batch.progress
    counts = ("queued", "running", "completed", "failed", "cancelled")
    screen.facts(
        [
            ("batch", batch.batch_id),
            ("type", batch.node_type),
            ("status", batch.status),
            ("items", f"{progress.total}: " + ", ".join(f"{getattr(progress, name)} {name}" for name in counts)),
            ("cached", f"{progress.cached} of those completed" if progress.cached else ""),
            ("done", f"{progress.percent:g} %"),
            ("waits", batch.reason),
            ("cancelled", f'{batch.stop_reason} (by "{batch.stop_by}")' if batch.stop_by else ""),
            ("submitted", screen.when(batch.submitted_at)),
            ("ended", screen.when(batch.finished_at)),
            ("took", length(batch.seconds)),
        ]
    )


@app.command()
@asynchronous
async def results(
    session: Session,
    batch_id: BatchId,
    failed: Annotated[bool, typer.Option("--failed", help="Only items that ended without completing.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Print the results of the items in order, one line each."""
    async with session.client() as client:
        async for item in client.list_batch_results(batch_id, include_parameters=output is Format.JSON):
            if not failed or (item.status.ended and item.status != "completed"):
                session.screen.show_next(output, item, _describe_item)


def _describe_item(screen: Screen, item: "NodeTaskRecord") -> None:
    from tradewind.cli.descriptions import note
    from tradewind.cli.plain import to_json

    given = ", ".join(f"{handle} = {to_json(value)}" for handle, value in item.outputs.items())
    text = f"{item.node_id}  {item.status}  {given or note(item)}".rstrip()
    screen.line(text, None if item.status == "completed" else STYLES.get(item.status))


@app.command("list")
@asynchronous
async def list_(
    session: Session,
    status: Annotated[
        list[str] | None, only_in_status("batches", "queued|running|completed|partial|failed|cancelled")
    ] = None,
    limit: Newest = 20,
    output: Output = Format.TEXT,
) -> None:
    """List your batches, newest first."""
    from tradewind.client import BatchStatus

    statuses = parse_statuses(status, BatchStatus)
    async with session.client() as client:
        batches = await take(session.screen, limit, client.list_batches(statuses=statuses))
    rows = [
        (
            batch.batch_id,
            batch.node_type,
            batch.status,
            f"{batch.progress.ended} of {batch.progress.total}",
            str(batch.progress.failed or ""),
            session.screen.when(batch.submitted_at),
            length(batch.seconds),
        )
        for batch in batches
    ]
    session.screen.results(output, batches, ["BATCH", "TYPE", "STATUS", "ENDED", "FAILED", "SUBMITTED", "TOOK"], rows)


@app.command()
@asynchronous
async def cancel(session: Session, batch_id: BatchId, reason: ReasonOption = "", output: Output = Format.TEXT) -> None:
    """Cancel a batch.

    Items that have not begun are skipped; running ones are asked to stop.
    """
    from tradewind.cli.batch_progress import counts_text

    async with session.client() as client:
        batch = await client.cancel_batch(batch_id, reason=reason)
    what = "is cancelled" if batch.stop_by else "had already ended"
    session.screen.result(output, batch, f"batch {batch_id} {what}: {counts_text(batch.progress)}")


@app.command()
@asynchronous
async def delete(session: Session, batch_id: BatchId, yes: Yes = False, output: Output = Format.TEXT) -> None:
    """Delete a batch that has ended, with its results and logs."""
    async with session.client() as client:
        if not yes and output is Format.TEXT and session.screen.is_interactive:
            batch = await client.get_batch(batch_id)
            items = counted(batch.progress.total, "item")
            typer.confirm(f"{batch_id} is {batch.status}. Delete it, with the results of {items}?", abort=True)
        await client.delete_batch(batch_id)
    session.screen.result(output, {"batch_id": batch_id}, f"batch {batch_id} deleted")


async def _watch(session: Session, handle: "BatchHandle", output: Format) -> None:
    """Show progress; raise typer.Exit unless all items complete."""
    from tradewind.cli.batch_progress import show_progress

    batch = await show_progress(session.screen, handle, output)
    if batch.status == "completed":
        return
    if output is Format.TEXT:
        command = f"tradewind batch results {batch.batch_id} --failed"
        raise fail(f"batch {batch.batch_id} ended with status {batch.status}; see: {command}")
    raise typer.Exit(FAILED)
