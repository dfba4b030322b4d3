"""`tradewind flow backfill|backfills|cancel-backfill`: running flows for past ranges of time."""

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli.failures import fail
from tradewind.cli.parameters import IN_UTC, FlowName, Newest, Output, ReasonOption, RequestId, take
from tradewind.cli.parsing import parse_time
from tradewind.cli.screen import Format, planned
from tradewind.cli.session import Session, asynchronous

if TYPE_CHECKING:
    from tradewind.client import BackfillRecord

_POLL_S = 0.5

app = typer.Typer()

BackfillNumber = Annotated[int, typer.Argument(metavar="BACKFILL", help="Number of the backfill.")]


@app.command()
@asynchronous
async def backfill(
    session: Session,
    name: FlowName,
    start: Annotated[
        datetime,
        typer.Option(
            "--from",
            metavar="TIME",
            parser=parse_time,
            help=f"Start of the range{IN_UTC}: 2026-11-01, 2026-11-01T09:30+01:00.",
        ),
    ],
    end: Annotated[
        datetime, typer.Option("--to", metavar="TIME", parser=parse_time, help=f"End of the range, exclusive{IN_UTC}.")
    ],
    max_running: Annotated[int, typer.Option(min=1, max=50, help="How many cycles may run at once.")] = 1,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all cycles have ended.")] = False,
    request_id: RequestId = None,
    output: Output = Format.TEXT,
) -> None:
    """Run a cycle for each planned time in a past range.

    Times that already have a cycle are skipped. With --wait, exits with 1 when a cycle fails or the backfill is
    cancelled.
    """
    async with session.client() as client:
        record = await client.backfill_flow(name, start, end, max_running=max_running, request_id=request_id)
        client.patience = session.patience
        while wait and not record.ended:
            await asyncio.sleep(_POLL_S)
            record = await client.get_backfill(name, record.backfill_id)
    text = f"backfill {record.backfill_id} of {name}: {record.times} planned times, {_progress(record)}"
    session.screen.result(output, record, text)
    if wait and (record.failed or record.status != "completed"):
        raise fail(f"backfill {record.backfill_id} is {record.status}; {record.failed} of its cycles did not complete")


@app.command()
@asynchronous
async def backfills(session: Session, name: FlowName, limit: Newest = 20, output: Output = Format.TEXT) -> None:
    """List backfills and their progress, newest first."""
    async with session.client() as client:
        found = await take(session.screen, limit, client.list_backfills(name))
    rows = [
        (
            str(each.backfill_id),
            each.status,
            planned(each.start),
            planned(each.end),
            f"{each.begun + each.skipped}/{each.times}",
            _progress(each),
            each.reason,
        )
        for each in found
    ]
    session.screen.results(output, found, ["BACKFILL", "STATUS", "FROM", "TO", "TIMES", "CYCLES", "REASON"], rows)


@app.command()
@asynchronous
async def cancel_backfill(
    session: Session, name: FlowName, number: BackfillNumber, reason: ReasonOption = "", output: Output = Format.TEXT
) -> None:
    """Cancel a backfill.

    No more of its cycles begin; running ones continue.
    """
    async with session.client() as client:
        cancelled = await client.cancel_backfill(name, number, reason=reason)
    session.screen.result(
        output, cancelled, f"backfill {number} of {name} is {cancelled.status}: {_progress(cancelled)}"
    )


def _progress(backfill: "BackfillRecord") -> str:
    parts = {"completed": backfill.completed, "failed": backfill.failed, "running": backfill.running}
    parts["skipped"] = backfill.skipped
    gone = f" ({backfill.expired} of the skipped cycles are no longer on record)" if backfill.expired else ""
    return ", ".join(f"{count} {what}" for what, count in parts.items() if count) + gone or "no cycle has begun yet"
