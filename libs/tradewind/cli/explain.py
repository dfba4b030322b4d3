"""`tradewind explain`: why a flow or a node waits, or ended as it did."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli import completion
from tradewind.cli.parameters import Output
from tradewind.cli.screen import Format, Screen
from tradewind.cli.session import Session, asynchronous

if TYPE_CHECKING:
    from tradewind.client import Client, CycleDescription, NodeTaskRecord, Reason

_NODES = 5
"""How many nodes of a cycle are listed."""


@asynchronous
async def explain(
    session: Session,
    name: Annotated[
        str,
        typer.Argument(
            metavar="FLOW", help="Name of the flow, or the id of a node task.", autocompletion=completion.flows
        ),
    ],
    where: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CYCLE] NODE",
            help="A node of the latest cycle, or of CYCLE; NODE:ITEM for one item of a list.",
            autocompletion=completion.nodes,
        ),
    ] = None,
    run: Annotated[int | None, typer.Option(min=0, help="Run of the cycle; defaults to the latest.")] = None,
    output: Output = Format.TEXT,
) -> None:
    """Explain why a flow or node waits, or ended as it did.

    For a flow, says why it begins no cycle. The deciding reason comes first. For a running cycle, lists the nodes that
    have begun or are ready to begin.
    """
    from tradewind.client import NotFound

    places = where or []
    is_id = ":" in name
    if len(places) > 2 or (len(places) == 2 and not places[0].isdecimal()) or (places and is_id):
        raise typer.BadParameter("give FLOW, FLOW NODE, FLOW CYCLE NODE (CYCLE is a number), or the id of a node task")
    if run is not None and is_id:
        raise typer.BadParameter("leave it out with the id of a node task", param_hint="--run")
    if run is not None and not places:
        raise typer.BadParameter("it needs a cycle: give FLOW CYCLE NODE --run RUN", param_hint="--run")
    running: dict[int, CycleDescription] = {}
    async with session.client() as client:
        try:
            reasons = await _reasons(client, name, places, run)
        except NotFound:
            # A number that names no node is the number of a cycle.
            if len(places) != 1 or not places[0].isdecimal() or output is Format.JSON:
                raise
            _show_cycle(session.screen, await client.describe_cycle(name, int(places[0]), run, include_logs=False))
            return
        if output is Format.TEXT:
            for facts in (each.facts for each in reasons if each.code == "cycle_running"):
                cycle = facts["cycle"]
                running[cycle] = await client.describe_cycle(name, cycle, facts["run"], include_logs=False)
    if output is Format.JSON:
        session.screen.json(reasons)
        return
    for reason in reasons:
        session.screen.line(f"{reason.code}: {reason.sentence}")
        if reason.code == "cycle_running":
            for line in open_node_lines(running[reason.facts["cycle"]]):
                session.screen.line(line)
    if not reasons:
        session.screen.line("nothing is holding it back")


async def _reasons(client: "Client", name: str, places: list[str], run: int | None) -> "tuple[Reason, ...]":
    """Ask about a node task by its id, a flow, or a node of a flow."""
    id_parts = name.split(":", 3)
    if len(id_parts) == 4 and id_parts[1].isdecimal() and id_parts[2].isdecimal():
        return await client.explain_node(id_parts[0], id_parts[3], cycle=int(id_parts[1]), run=int(id_parts[2]))
    if len(id_parts) > 1:
        return await client.explain_node_task(name)
    if not places:
        return await client.explain_flow(name)
    cycle = int(places[0]) if len(places) == 2 else None
    return await client.explain_node(name, places[-1], cycle=cycle, run=run)


def _show_cycle(screen: Screen, described: "CycleDescription") -> None:
    """Print the status of a cycle, and its nodes that did not complete, except those that wait for other nodes."""
    cycle = described.cycle
    suffix = f": {cycle.reason}" if cycle.reason else ""
    screen.line(f"cycle {cycle.cycle} {'is' if cycle.end_time is None else 'ended with status'} {cycle.status}{suffix}")
    for line in _node_lines(
        described, [each for each in described.nodes if each.status not in ("completed", "registered")]
    ):
        screen.line(line)


def open_node_lines(described: "CycleDescription") -> list[str]:
    """Return a line for each open node that waits for no other node, saying why it has not ended."""
    nodes = [each for each in described.nodes if not each.status.ended and each.status != "registered"]
    return _node_lines(described, nodes)


def waiting_node_lines(described: "CycleDescription") -> list[str]:
    """Return a line for each node of which it is known what it waits for, other nodes aside."""
    from tradewind.cli.descriptions import note

    waiting = [each for each in described.nodes if each.status in ("pending", "suspended") and note(each)]
    return _node_lines(described, waiting)


def _node_lines(described: "CycleDescription", nodes: "Sequence[NodeTaskRecord]") -> list[str]:
    from tradewind.cli.descriptions import note

    lines = [f"  {node.node_id} ({node.node_type}): {note(node) or node.status}" for node in nodes[:_NODES]]
    if len(nodes) > _NODES:
        cycle = described.cycle
        lines.append(f"  and {len(nodes) - _NODES} more: tradewind cycle show {cycle.flow_id} {cycle.cycle}")
    return lines
