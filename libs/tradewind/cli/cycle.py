"""`tradewind cycle ...`: what became of the cycles of a flow."""

from typing import Annotated

import typer

from tradewind.cli.failures import FAILED, WRONG_INPUT, fail
from tradewind.cli.parameters import Output, chosen_statuses, first
from tradewind.cli.screen import Format, length
from tradewind.cli.session import Session, asynchronous

app = typer.Typer(no_args_is_help=True, help="Look at the cycles of flows.", rich_markup_mode=None)

Flow = Annotated[str, typer.Argument(metavar="FLOW", help="Name of the flow.")]


@app.command()
@asynchronous
async def show(
    session: Session,
    flow: Flow,
    cycle: Annotated[
        int | None, typer.Argument(metavar="[CYCLE]", help="Its number; the latest when left out.")
    ] = None,
    node: Annotated[
        str | None, typer.Option("--output", metavar="NODE", help="Print what this node emitted, as JSON by handle.")
    ] = None,
    items_of: Annotated[
        str | None, typer.Option("--items", metavar="NODE", help="Show the items of this node, which runs over a list.")
    ] = None,
    output: Output = Format.TEXT,
) -> None:
    """Show a cycle, what a node emitted, or the items of a node."""
    from tradewind.cli.descriptions import show_cycle

    if items_of is not None:
        await _show_items(session, flow, cycle, items_of, output)
        return
    async with session.client() as client:
        described = await client.describe_cycle(
            flow, cycle, include_outputs=node is not None or output is Format.JSON, include_logs=output is Format.JSON
        )
    if node is None:
        session.screen.json(described) if output is Format.JSON else show_cycle(session.screen, described)
        return
    found = described.node(node)
    if found is None:
        from difflib import get_close_matches

        near = get_close_matches(node, [each.node_id for each in described.nodes], n=1)
        hint = f'; did you mean "{near[0]}"?' if near else ""
        raise fail(f'cycle {described.cycle.cycle} of {flow} has no node "{node}"{hint}', WRONG_INPUT)
    if found.status != "completed":
        from tradewind.cli.descriptions import note

        why = note(found)
        raise fail(f"{node} has no output: it is {found.status}{': ' + why if why else ''}", FAILED)
    session.screen.json(found.outputs)


async def _show_items(session: Session, flow: str, cycle: int | None, node: str, output: Format) -> None:
    from tradewind.cli.descriptions import show_items

    async with session.client() as client:
        found = await client.get_cycle(flow, cycle)
        items = [item async for item in client.list_node_tasks(flow, found.cycle, found.run, items_of=node)]
    session.screen.json(items) if output is Format.JSON else show_items(session.screen, items)


@app.command("list")
@asynchronous
async def list_(
    session: Session,
    flow: Flow,
    status: Annotated[list[str] | None, typer.Option(help="Only cycles in this status; may be repeated.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most this many, the newest.")] = 20,
    output: Output = Format.TEXT,
) -> None:
    """List the cycles of a flow, newest first."""
    from tradewind.cli.descriptions import counts_words
    from tradewind.client import CycleStatus

    statuses = chosen_statuses(status, CycleStatus)
    async with session.client() as client:
        cycles = await first(limit, client.list_cycles(flow, statuses=statuses))
    if output is Format.JSON:
        session.screen.json(cycles)
        return
    rows = [
        (
            str(each.cycle),
            each.status,
            session.screen.when(each.start_time),
            length(each.seconds) if each.seconds is not None else "",
            counts_words(each.counts),
            each.origin,
            each.reason,
        )
        for each in cycles
    ]
    session.screen.table(["CYCLE", "STATUS", "STARTED", "TOOK", "NODES", "ORIGIN", "REASON"], rows)
