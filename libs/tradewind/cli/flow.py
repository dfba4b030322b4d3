"""`tradewind flow ...`: registering, starting and stopping flows, running cycles, looking at them."""

from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli import completion
from tradewind.cli.failures import WRONG_INPUT, fail
from tradewind.cli.parameters import (
    Definition,
    Etag,
    FlowName,
    Inputs,
    InputsJson,
    Labels,
    Limit,
    Output,
    Patience,
    ReasonOption,
    RequestId,
    Wait,
    Yes,
    one_of,
    only_in_status,
    take,
)
from tradewind.cli.parsing import (
    check_patience,
    parse_choice,
    parse_duration,
    parse_object,
    parse_pairs,
    parse_statuses,
    parse_values,
)
from tradewind.cli.screen import Format
from tradewind.cli.session import Session, asynchronous

if TYPE_CHECKING:
    from tradewind.client import FlowRecord

app = typer.Typer(no_args_is_help=True, help="Register, start, stop, run and inspect flows.", rich_markup_mode=None)


class Drawing(StrEnum):
    """How a flow is drawn."""

    TEXT = "text"
    MERMAID = "mermaid"
    DOT = "dot"
    JSON = "json"


@app.command()
@asynchronous
async def register(
    session: Session,
    name: FlowName,
    file: Definition,
    label: Labels = None,
    note: ReasonOption = "",
    etag: Etag = "",
    output: Output = Format.TEXT,
) -> None:
    """Register a flow from a file or a module.

    An existing flow gets a new revision and keeps its history and status.
    """
    from tradewind.cli.definition_files import read_definition, refuse_swapped
    from tradewind.cli.plans import declared_elsewhere, show_registration
    from tradewind.client import InvalidInput, TradewindError

    labels = parse_pairs(label, "--label")
    refuse_swapped("register", name, file)
    definition = read_definition(file)
    async with session.client() as client:
        try:
            registered = await client.register_flow(name, definition, labels=labels, note=note, etag=etag)
        except InvalidInput as error:
            # The error carries faults only. Most warnings may just follow from these, but not a misspelt node type.
            with suppress(TradewindError):
                warnings = (await client.analyze_flow(definition)).warnings
                session.screen.notes(str(each) for each in warnings if each.path.endswith(".type"))
            session.screen.notes(declared_elsewhere(error.violations))
            raise
    session.screen.show(output, registered, show_registration)


@app.command()
@asynchronous
async def analyze(session: Session, file: Definition, output: Output = Format.TEXT) -> None:
    """List the faults and warnings of a definition.

    Nothing is registered. Exits with 2 when there are faults.
    """
    from tradewind.cli.definition_files import read_definition
    from tradewind.cli.plans import declared_elsewhere, show_analysis

    definition = read_definition(file)
    async with session.client() as client:
        analysis = await client.analyze_flow(definition)
    session.screen.show(output, analysis, show_analysis)
    if not analysis.valid:
        session.screen.notes(declared_elsewhere(analysis.violations))
        faults = "\n  ".join(["the definition has faults:", *map(str, analysis.violations)])
        raise fail(faults, WRONG_INPUT)


@app.command()
@asynchronous
async def start(session: Session, name: FlowName, output: Output = Format.TEXT) -> None:
    """Start the schedule of a flow.

    With an interval, the first cycle begins now, unless the schedule has a start; otherwise when the schedule says.
    """
    async with session.client() as client:
        flow = await client.start_flow(name)
    _show_change(session, flow, output)


@app.command()
@asynchronous
async def stop(session: Session, name: FlowName, reason: ReasonOption = "", output: Output = Format.TEXT) -> None:
    """Stop a flow and its running cycles.

    No cycle begins until the flow is started again, even after a restart of the services.
    """
    async with session.client() as client:
        flow = await client.stop_flow(name, reason=reason)
    _show_change(session, flow, output)


@app.command()
@asynchronous
async def run(
    session: Session,
    name: FlowName,
    input: Inputs = None,
    inputs_json: InputsJson = None,
    wait: Wait = False,
    timeout: Patience = None,
    request_id: RequestId = None,
    output: Output = Format.TEXT,
) -> None:
    """Run one cycle now.

    It runs regardless of the flow's schedule and status. With --wait, exits with 1 unless the cycle completes.
    """
    from tradewind.cli.outcomes import wait_for_outcome

    check_patience(wait, timeout)
    inputs = parse_object(inputs_json, "--inputs-json") | parse_values(input, "--input")
    async with session.client() as client:
        handle = await client.run_flow(name, inputs, request_id=request_id)
        session.screen.notes(handle.warnings)
        if wait:
            client.patience = session.patience
            await wait_for_outcome(session.screen, client, handle, timeout, output)
        else:
            session.screen.result(output, handle.record, f"started cycle {handle.cycle} of {name}")


@app.command()
@asynchronous
async def status(session: Session, name: FlowName, output: Output = Format.TEXT) -> None:
    """Show the status of a flow and its latest cycle."""
    from tradewind.cli.flow_status import show_flow

    async with session.client() as client:
        described = await client.get_flow(name)
        cycle = described.current_cycle
        statistics = await client.cycle_statistics(name, cycle.cycle) if cycle is not None else None
    if output is Format.JSON:
        session.screen.json({"flow": described.flow, "current_cycle": cycle, "statistics": statistics})
    else:
        show_flow(session.screen, described, statistics)


@app.command()
@asynchronous
async def watch(
    session: Session,
    names: Annotated[
        list[str], typer.Argument(metavar="NAME", help="Names of flows.", autocompletion=completion.flows)
    ],
    cycles: Annotated[
        int, typer.Option(min=0, help="Exit after this many cycles have ended; 0 runs until Ctrl-C.")
    ] = 0,
    output: Output = Format.TEXT,
) -> None:
    """Show cycles as they run, until Ctrl-C."""
    from tradewind.cli.progress import watch_cycles

    async with session.client() as client:
        for name in names:
            await client.get_flow(name)
        client.patience = session.patience
        await watch_cycles(session.screen, client, client.watch_flows(*names), output, max_ended=cycles)


@app.command()
@asynchronous
async def graph(
    session: Session,
    name: FlowName,
    drawing: Annotated[Drawing, typer.Option("-o", "--format", help="Output format.")] = Drawing.TEXT,
) -> None:
    """Draw a flow's nodes and edges.

    As text for a terminal, mermaid for Markdown, or dot for Graphviz.
    """
    from tradewind.flow import Flow

    async with session.client() as client:
        described = await client.get_flow(name)
    if drawing is Drawing.JSON:
        weather = described.flow.config
        session.screen.json({"flow_id": name, "nodes": weather["nodes"], "edges": weather.get("edges", [])})
        return
    flow = Flow.from_weather(name, described.flow.config)
    pictures = {Drawing.MERMAID: flow.to_mermaid, Drawing.DOT: flow.to_dot}
    session.screen.line(pictures[drawing]() if drawing in pictures else flow.to_text(unicode=session.screen.unicode))


@app.command()
@asynchronous
async def logs(
    session: Session,
    name: FlowName,
    cycle: Annotated[int | None, typer.Option(min=0, help="Only this cycle.")] = None,
    node: Annotated[
        str,
        typer.Option(
            metavar="NODE", help="Only this node; NODE:ITEM for one item of a list.", autocompletion=completion.nodes
        ),
    ] = "",
    level: Annotated[
        str,
        one_of("debug|info|warning|error|critical", "--level", help="Only lines of at least this level."),
    ] = "debug",
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Keep printing new lines as they arrive.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Print the log of a flow, oldest line first.

    The log is that of the newest 5 cycles, or of one with --cycle.
    """
    from tradewind.cli.descriptions import show_log_line
    from tradewind.client import LogLevel

    min_level = parse_choice(level.lower(), LogLevel, "--level")
    async with session.client() as client:
        if follow:
            flow = (await client.get_flow(name)).flow
            if node and cycle is None:
                _require_node(flow, node)
            client.patience = session.patience
            async for line in client.watch_logs(name, cycle, node_id=node, min_level=min_level):
                session.screen.show_next(output, line, show_log_line)
            return
        found = [line async for line in client.list_logs(name, cycle, node_id=node, min_level=min_level)]
        if node and not found:
            # A node of an earlier revision would have lines.
            _require_node((await client.get_flow(name)).flow, node)
    if output is Format.JSON:
        session.screen.json(found)
        return
    for line in found:
        show_log_line(session.screen, line)


@app.command()
@asynchronous
async def delete(
    session: Session,
    name: FlowName,
    timeout: Annotated[
        float,
        typer.Option(
            metavar="DURATION",
            parser=parse_duration,
            help="Longest time to wait for the deletion to finish: 20, 20s, 5m.",
        ),
    ] = 30,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """Stop a flow and delete it with all its history."""
    async with session.client() as client:
        if not yes and output is Format.TEXT and session.screen.is_interactive:
            flow = (await client.get_flow(name)).flow
            history = f", with the history of {flow.last_cycle + 1} cycles" if flow.last_cycle is not None else ""
            typer.confirm(f"{name} is {flow.status}. Delete it{history}?", abort=True)
        done = await client.delete_flow(name, wait=timeout)
    text = f"{name} deleted" if done else f"{name} is being deleted; deletion continues in the background"
    session.screen.result(output, {"flow_id": name, "done": done}, text)


@app.command("list")
@asynchronous
async def list_(
    session: Session,
    status: Annotated[
        list[str] | None, only_in_status("flows", "registered|running|paused|stopped|completed|failed|deleting")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Only flows with this label; may be repeated.")
    ] = None,
    limit: Limit = 100,
    output: Output = Format.TEXT,
) -> None:
    """List flows by name."""
    from tradewind.client import FlowStatus

    statuses = parse_statuses(status, FlowStatus)
    labels = parse_pairs(label, "--label")
    async with session.client() as client:
        flows = await take(session.screen, limit, client.list_flows(statuses=statuses, labels=labels))
    if not flows and session.screen.terminal and output is Format.TEXT:
        session.screen.line("no flows; register one with: tradewind flow register NAME FILE", "dim")
        return
    rows = [
        (
            flow.flow_id,
            flow.status,
            str(flow.node_count),
            str(flow.last_cycle) if flow.last_cycle is not None else "",
            str(flow.running_cycles or ""),
            session.screen.when(flow.next_execution) or flow.begins_on,
            ",".join(f"{key}={value}" for key, value in sorted(flow.labels.items())),
        )
        for flow in flows
    ]
    columns = ["FLOW", "STATUS", "NODES", "LAST CYCLE", "RUNNING", "NEXT", "LABELS"]
    session.screen.results(output, flows, columns, rows)


def _require_node(flow: "FlowRecord", node: str) -> None:
    from tradewind.server.nearest_name import NearestName

    nodes = [each["id"] for each in flow.config["nodes"]]
    if node.partition(":")[0] not in nodes:
        raise fail(f'{flow.flow_id} has no node "{node}"{NearestName(nodes).hint(node)}', WRONG_INPUT)


def _show_change(session: Session, flow: "FlowRecord", output: Format) -> None:
    following = ""
    if flow.next_execution:
        following = f", next cycle {session.screen.when(flow.next_execution)}"
    elif flow.begins_on and flow.status == "running":
        following = f", begins on {flow.begins_on}"
    session.screen.result(output, flow, f"{flow.flow_id} is {flow.status}{following}")
