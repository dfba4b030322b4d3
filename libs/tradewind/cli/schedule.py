"""`tradewind flow pause|resume|next|firings`: the schedules of flows."""

from typing import Annotated

import typer

from tradewind.cli.parameters import FlowName, Newest, Output, ReasonOption, take
from tradewind.cli.screen import Format, planned
from tradewind.cli.session import Session, asynchronous

app = typer.Typer()


@app.command()
@asynchronous
async def pause(session: Session, name: FlowName, note: ReasonOption = "", output: Output = Format.TEXT) -> None:
    """Pause a flow: no cycle is due until it is resumed.

    Running cycles continue. Cycles that are run by hand, reruns, and cycles of nodes of other flows still begin.
    """
    async with session.client() as client:
        flow = await client.pause_flow(name, note=note)
    session.screen.result(output, flow, f"{name} is {flow.status}")


@app.command()
@asynchronous
async def resume(session: Session, name: FlowName, output: Output = Format.TEXT) -> None:
    """Resume a paused flow, from its next planned time on."""
    async with session.client() as client:
        flow = await client.resume_flow(name)
    following = f", begins on {flow.begins_on}" if flow.begins_on else ""
    following = f", next cycle {session.screen.when(flow.next_execution)}" if flow.next_execution else following
    session.screen.result(output, flow, f"{name} is {flow.status}{following}")


@app.command("next")
@asynchronous
async def next_(
    session: Session,
    name: FlowName,
    count: Annotated[int, typer.Option("-n", "--count", min=1, max=1000, help="How many times to print.")] = 10,
    output: Output = Format.TEXT,
) -> None:
    """Print the next planned times of a flow.

    For a flow that begins on events, prints those. For a flow that is not running, prints the times it would have if
    it were started now.
    """
    async with session.client() as client:
        moments = await client.next_executions(name, count)
        flow = None if moments else (await client.get_flow(name)).flow
    if output is Format.JSON:
        session.screen.json(moments)
        return
    for moment in moments:
        session.screen.line(planned(moment))
    if flow is not None:
        session.screen.line(f"begins on {flow.begins_on}" if flow.begins_on else "no more times are planned")


@app.command()
@asynchronous
async def firings(
    session: Session,
    name: FlowName,
    limit: Newest = 20,
    backfill: Annotated[int | None, typer.Option(min=1, help="Only firings of this backfill.")] = None,
    output: Output = Format.TEXT,
) -> None:
    """List what became of planned times and events.

    Each was fired, skipped, queued, missed or dropped, and the list says why; the newest comes first.
    """
    async with session.client() as client:
        lines = await take(session.screen, limit, client.list_firings(name, backfill_id=backfill or 0))
    rows = [
        (
            planned(line.planned_time),
            line.outcome + (f" x{line.count}" if line.count > 1 else ""),
            "" if line.cycle is None else str(line.cycle),
            "; ".join(filter(None, (line.event_id and f"event {line.event_id}", line.reason))),
        )
        for line in lines
    ]
    session.screen.results(output, lines, ["PLANNED", "OUTCOME", "CYCLE", "REASON"], rows)
