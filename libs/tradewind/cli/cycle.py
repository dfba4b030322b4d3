"""`tradewind cycle ...`: what became of the cycles of a flow."""

from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli import completion
from tradewind.cli.failures import WRONG_INPUT, fail
from tradewind.cli.parameters import (
    Inputs,
    InputsJson,
    Newest,
    Output,
    Patience,
    ReasonOption,
    RequestId,
    StartedAfter,
    StartedBefore,
    Wait,
    only_in_status,
    take,
)
from tradewind.cli.parsing import check_patience, parse_object, parse_statuses, parse_values
from tradewind.cli.screen import Format, counted, length
from tradewind.cli.session import Session, asynchronous

if TYPE_CHECKING:
    from tradewind.client import CycleDescription

app = typer.Typer(no_args_is_help=True, help="Show, approve, stop and rerun cycles.", rich_markup_mode=None)

Flow = Annotated[str, typer.Argument(metavar="FLOW", help="Name of the flow.", autocompletion=completion.flows)]
Cycle = Annotated[int | None, typer.Argument(metavar="CYCLE", help="Number of the cycle; defaults to the latest.")]


@app.command()
@asynchronous
async def show(
    session: Session,
    flow: Flow,
    cycle: Cycle = None,
    node: Annotated[
        str | None,
        typer.Option(
            "--output",
            metavar="NODE",
            help="Print what this node emitted, as JSON by handle.",
            autocompletion=completion.nodes,
        ),
    ] = None,
    run: Annotated[int | None, typer.Option("--run", min=0, help="Run of the cycle; defaults to the latest.")] = None,
    items_of: Annotated[
        str | None,
        typer.Option(
            "--items",
            metavar="NODE",
            help="Show the items of this node, which runs over a list.",
            autocompletion=completion.nodes,
        ),
    ] = None,
    output: Output = Format.TEXT,
) -> None:
    """Show a cycle, what a node emitted, or the items of a node."""
    from tradewind.cli.descriptions import note, show_cycle

    if node is not None and items_of is not None:
        raise typer.BadParameter("give --output or --items, not both", param_hint="--items")
    if items_of is not None:
        await _show_items(session, flow, cycle, run, items_of, output)
        return
    async with session.client() as client:
        described = await client.describe_cycle(
            flow,
            cycle,
            run,
            include_outputs=node is not None or output is Format.JSON,
            include_logs=output is Format.JSON,
        )
    if node is None:
        session.screen.show(output, described, show_cycle)
        return
    if described.gone:
        raise fail(described.gone)
    found = described.node(node)
    if found is None:
        raise _no_node(flow, node, described)
    if found.status != "completed":
        reason = note(found)
        raise fail(f"{node} has no output: it is {found.status}{': ' + reason if reason else ''}")
    session.screen.json(found.outputs)


async def _show_items(
    session: Session, flow: str, cycle: int | None, run: int | None, node: str, output: Format
) -> None:
    from tradewind.cli.descriptions import show_items
    from tradewind.client import NotFound

    async with session.client() as client:
        found = await client.get_cycle(flow, cycle, run)
        try:
            items = [item async for item in client.list_node_tasks(flow, found.cycle, found.run, items_of=node)]
        except NotFound:
            described = await client.describe_cycle(flow, found.cycle, found.run, include_logs=False)
            if described.node(node) is None:
                raise _no_node(flow, node, described) from None
            raise fail(f"{node} does not run over a list: it has no items", WRONG_INPUT) from None
    session.screen.show(output, items, show_items)


@app.command()
@asynchronous
async def approve(
    session: Session,
    flow: Flow,
    cycle: Annotated[int, typer.Argument(metavar="CYCLE", help="Number of the cycle.")],
    node: Annotated[
        str,
        typer.Argument(
            metavar="NODE",
            help="The node that waits for an answer; NODE:ITEM for one item of a list.",
            autocompletion=completion.nodes,
        ),
    ],
    reject: Annotated[bool, typer.Option("--reject", help="Reject instead of approving.")] = False,
    value: Annotated[
        list[str] | None,
        typer.Option(
            "--value", metavar="NAME=VALUE", help="A field of the form, as JSON or plain text; may be repeated."
        ),
    ] = None,
    request_id: RequestId = None,
    output: Output = Format.TEXT,
) -> None:
    """Approve or reject what a waiting node asks.

    `tradewind cycle show` shows its form, with --items that of an item of a list.
    """
    values = parse_values(value, "--value")
    name, colon, item = node.partition(":")
    async with session.client() as client:
        described = await client.describe_cycle(flow, cycle, include_logs=False)
        found = described.node(name)
        if found is None:
            raise _no_node(flow, name, described)
        if found.items is not None and not item:
            raise fail(f"{name} runs over a list: answer one item of it, such as {name}:0", WRONG_INPUT)
        task = await client.answer_node(
            found.node_task_id + colon + item,
            approved=not reject,
            values=values,
            request_id=request_id or "",
            owner=found.user_id,
        )
    session.screen.result(
        output, task, f"{node} was {'rejected' if reject else 'approved'}; its status is {task.status}"
    )


def _no_node(flow: str, node: str, described: "CycleDescription") -> typer.Exit:
    from tradewind.server.nearest_name import NearestName

    hint = NearestName(each.node_id for each in described.nodes).hint(node)
    return fail(f'cycle {described.cycle.cycle} of {flow} has no node "{node}"{hint}', WRONG_INPUT)


@app.command("list")
@asynchronous
async def list_(
    session: Session,
    flow: Flow,
    status: Annotated[
        list[str] | None, only_in_status("cycles", "running|completed|partial|failed|timeout|cancelled")
    ] = None,
    started_after: StartedAfter = None,
    started_before: StartedBefore = None,
    limit: Newest = 20,
    output: Output = Format.TEXT,
) -> None:
    """List the cycles of a flow, newest first."""
    from tradewind.cli.descriptions import counts_text
    from tradewind.client import CycleStatus

    statuses = parse_statuses(status, CycleStatus)
    async with session.client() as client:
        found = client.list_cycles(flow, statuses=statuses, started_after=started_after, started_before=started_before)
        cycles = await take(session.screen, limit, found)
    rows = [
        (
            f"{each.cycle}{f' run {each.run}' if each.run else ''}",
            each.status,
            session.screen.when(each.start_time),
            length(each.seconds),
            counts_text(each.counts),
            each.origin,
            each.reason,
        )
        for each in cycles
    ]
    session.screen.results(output, cycles, ["CYCLE", "STATUS", "STARTED", "TOOK", "NODES", "ORIGIN", "REASON"], rows)


@app.command()
@asynchronous
async def rerun(
    session: Session,
    flow: Flow,
    cycle: Cycle = None,
    from_nodes: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="NODE",
            help="Also rerun this node and everything downstream of it; may be repeated.",
            autocompletion=completion.nodes,
        ),
    ] = None,
    input: Inputs = None,
    inputs_json: InputsJson = None,
    reason: ReasonOption = "",
    wait: Wait = False,
    timeout: Patience = None,
    request_id: RequestId = None,
    output: Output = Format.TEXT,
) -> None:
    """Run a cycle again, keeping its good results.

    Nodes that failed, were terminated, or were skipped because of that run again, as does everything downstream of
    them. Inputs replace those of the previous run by name. With --wait, exits with 1 unless the cycle completes.
    """
    from tradewind.cli.outcomes import wait_for_outcome
    from tradewind.client import WrongStatus

    check_patience(wait, timeout)
    inputs = parse_object(inputs_json, "--inputs-json") | parse_values(input, "--input")
    async with session.client() as client:
        try:
            handle = await client.rerun_cycle(
                flow, cycle, from_nodes=from_nodes or (), inputs=inputs, reason=reason, request_id=request_id
            )
        except WrongStatus as error:
            if error.reason != "NOTHING_TO_RERUN":
                raise
            raise fail(f"{error.message} with --from NODE") from None
        session.screen.notes(handle.warnings)
        if wait:
            client.patience = session.patience
            await wait_for_outcome(session.screen, client, handle, timeout, output)
        elif output is Format.JSON:
            session.screen.json(handle.record)
        else:
            record = await handle.get()
            kept = record.rerun.kept_nodes if record.rerun is not None else 0
            started = f"started run {record.run} of cycle {record.cycle} of {flow}"
            session.screen.line(f"{started}; it keeps {counted(kept, 'result')}")


@app.command()
@asynchronous
async def stop(
    session: Session,
    flow: Flow,
    cycle: Cycle = None,
    node: Annotated[
        str | None, typer.Option(metavar="NODE", help="Stop this node only.", autocompletion=completion.nodes)
    ] = None,
    component: Annotated[str | None, typer.Option(metavar="ID", help="Stop this component only.")] = None,
    reason: ReasonOption = "",
    output: Output = Format.TEXT,
) -> None:
    """Stop a cycle, or one node or component of it.

    Running nodes are asked to stop; waiting ones are skipped.
    """
    from tradewind.cli.descriptions import show_stopped

    if node is not None and component is not None:
        raise typer.BadParameter("give --node or --component, not both", param_hint="--component")
    async with session.client() as client:
        if node is not None:
            stopped = await client.stop_node(flow, node, cycle, reason=reason)
            show_stopped(session.screen, output, node, stopped)
            return
        if component is not None:
            found = await client.stop_component(flow, component, cycle, reason=reason)
        else:
            found = await client.stop_cycle(flow, cycle, reason=reason)
    what = f"component {component} of cycle" if component is not None else "cycle"
    line = f"{what} {found.cycle} of {flow} {'is stopping' if not found.ended else f'is {found.status}'}"
    session.screen.result(output, found, line)
