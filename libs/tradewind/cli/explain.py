"""`tradewind explain`: why a flow or a node waits, or ended as it did."""

from typing import Annotated

import typer

from tradewind.cli.parameters import FlowName, Output
from tradewind.cli.screen import Format
from tradewind.cli.session import Session, asynchronous


@asynchronous
async def explain(
    session: Session,
    name: FlowName,
    where: Annotated[
        list[str] | None, typer.Argument(metavar="[CYCLE] [NODE]", help="A node, of the latest cycle or of this one.")
    ] = None,
    run: Annotated[int | None, typer.Option(min=0, help="Which run of the cycle; the latest unless given.")] = None,
    output: Output = Format.TEXT,
) -> None:
    """Say why a flow begins no cycle, or why a node of a cycle waits or ended as it did; what decides comes first."""
    places = where or []
    if len(places) > 2 or (len(places) == 2 and not places[0].isdecimal()):
        raise typer.BadParameter("write FLOW, FLOW NODE, or FLOW CYCLE NODE with the number of a cycle")
    async with session.client() as client:
        if not places:
            reasons = await client.explain_flow(name)
        else:
            cycle = int(places[0]) if len(places) == 2 else None
            reasons = await client.explain_node(name, places[-1], cycle=cycle, run=run)
    if output is Format.JSON:
        session.screen.json(reasons)
        return
    for reason in reasons:
        session.screen.line(f"{reason.code}: {reason.sentence}")
    if not reasons:
        session.screen.line("nothing keeps it")
