"""`tradewind flow plan|update|revisions|diff|rollback`: what flows would be, are, and were."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli.failures import WRONG_INPUT, fail
from tradewind.cli.parameters import Etag, FlowName, Labels, Newest, Output, ReasonOption, take
from tradewind.cli.parsing import parse_pairs
from tradewind.cli.screen import Format, Screen
from tradewind.cli.session import Session, asynchronous

if TYPE_CHECKING:
    from tradewind.client import RevisedFlow

app = typer.Typer()


@app.command()
@asynchronous
async def plan(
    session: Session,
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME] FILE",
            help="Name of the flow, by default the Flow's id or the file's name without its suffix; and what `flow "
            "register` takes: JSON or YAML file, - for stdin, or MODULE:NAME of a Flow that is built in Python.",
        ),
    ],
    label: Labels = None,
    output: Output = Format.TEXT,
) -> None:
    """Show what registering a definition would do.

    Stores nothing. Shows what changes, the waves of nodes, the workers that could run them, the limits that will apply
    and the next planned times. Exits with 2 when there are faults.
    """
    from tradewind.cli.definition_files import read_definition, refuse_swapped
    from tradewind.cli.plans import declared_elsewhere, show_plan

    *names, file = source
    if len(names) > 1:
        raise fail(f"plan takes a name and a file, not {len(source)} arguments", WRONG_INPUT)
    for name in names:
        refuse_swapped("plan", name, file)
    definition = read_definition(file)
    flow_id = names[0] if names else definition.flow_id
    async with session.client() as client:
        found = await client.plan_flow(flow_id, definition, labels=parse_pairs(label, "--label"))
    session.screen.show(output, found, show_plan)
    if not found.valid:
        session.screen.notes(declared_elsewhere(found.violations))
        raise typer.Exit(WRONG_INPUT)


@app.command()
@asynchronous
async def update(
    session: Session,
    name: FlowName,
    fields: Annotated[
        list[str],
        typer.Argument(
            metavar="FIELD=VALUE",
            help="Changes such as interval=5m, overlap=queue_one, schedule.jitter=5s, max_running=none, labels.team=a.",
        ),
    ],
    note: ReasonOption = "",
    etag: Etag = "",
    output: Output = Format.TEXT,
) -> None:
    """Change fields of a flow other than its graph.

    `none` restores the default. A running flow follows a new schedule at once.
    """
    changes, labels = _changes(fields)
    async with session.client() as client:
        if labels:
            # Labels are replaced as a whole, so the ones that were read must still be current.
            standing = (await client.get_flow(name)).flow
            changes["labels"] = {key: text for key, text in {**standing.labels, **labels}.items() if text is not None}
            etag = etag or standing.etag
        revised = await client.update_flow(name, changes, note=note, etag=etag)
    session.screen.show(output, revised, _describe)


@app.command()
@asynchronous
async def revisions(session: Session, name: FlowName, limit: Newest = 20, output: Output = Format.TEXT) -> None:
    """List the revisions of a flow, newest first.

    Shows who made each, when and why.
    """
    async with session.client() as client:
        found = await take(session.screen, limit, client.list_revisions(name))
    rows = [
        (
            f"{each.revision}{' *' if each.current else ''}",
            session.screen.when(each.created_at),
            each.by,
            each.digest[:12],
            str(each.open_runs or ""),
            each.note,
        )
        for each in found
    ]
    session.screen.results(output, found, ["REVISION", "CREATED", "BY", "DIGEST", "OPEN RUNS", "NOTE"], rows)


@app.command()
@asynchronous
async def diff(
    session: Session,
    name: FlowName,
    a: Annotated[
        int | None, typer.Argument(metavar="A", min=1, help="A revision; defaults to the one before B.")
    ] = None,
    b: Annotated[
        int | None, typer.Argument(metavar="B", min=1, help="Another revision; defaults to the current one.")
    ] = None,
    output: Output = Format.TEXT,
) -> None:
    """Show how two revisions of a flow differ.

    By default, shows the latest change.
    """
    from tradewind.cli.plans import show_difference

    async with session.client() as client:
        found = await client.diff_revisions(name, a, b)
        if output is Format.JSON:
            session.screen.json(found)
            return
        before = await client.get_revision(name, found.from_revision)
        after = await client.get_revision(name, found.to_revision)
    show_difference(session.screen, name, before, after)


@app.command()
@asynchronous
async def rollback(
    session: Session,
    name: FlowName,
    revision: Annotated[int, typer.Argument(metavar="REVISION", min=1, help="The revision to go back to.")],
    note: ReasonOption = "",
    etag: Etag = "",
    output: Output = Format.TEXT,
) -> None:
    """Go back to the definition of an older revision.

    It becomes a new revision; cycles already running finish on theirs.
    """
    async with session.client() as client:
        revised = await client.roll_back_flow(name, revision, note=note, etag=etag)
    session.screen.show(output, revised, _describe)


def _describe(screen: Screen, revised: "RevisedFlow") -> None:
    flow = revised.flow
    following = f", next cycle {screen.when(flow.next_execution)}" if flow.next_execution else ""
    what = f"is at revision {flow.revision}" if revised.changed else f"is unchanged: revision {flow.revision}"
    screen.line(f"{flow.flow_id} {what}{following}")
    for warning in revised.warnings:
        screen.line(f"  note: {warning}", "yellow")


def _changes(fields: list[str]) -> tuple[dict[str, Any], dict[str, str | None]]:
    """Return the new value of each field, and of each label (None removes it). Raises typer.Exit for wrong usage."""
    changes: dict[str, Any] = {}
    labels: dict[str, str | None] = {}
    for field in fields:
        name, given, text = field.partition("=")
        if not given or not name:
            raise fail(f'"{field}" is not a change; write FIELD=VALUE, such as overlap=allow', WRONG_INPUT)
        if name.startswith("labels."):
            labels[name.removeprefix("labels.")] = None if text == "none" else text
        else:
            changes[name] = None if text == "none" and name != "schedule.catch_up" else _value(name, text)
    if labels and "labels" in changes:
        raise fail("give labels as a whole or one by one, not both", WRONG_INPUT)
    return changes, labels


_NUMBERS = ("keep_cycles", "max_running", "pause_after_failures", "schedule.max_cycles")


def _value(name: str, text: str) -> Any:
    """Return a number for a numeric field, parsed JSON for text that looks like an object or list, else the text.

    A single time for `schedule.at` becomes a list.
    """
    if name in _NUMBERS or text.startswith(("{", "[")):
        try:
            return json.loads(text)
        except ValueError:
            what = "a number" if name in _NUMBERS else "valid JSON"
            raise fail(f'"{name}={text}": this is not {what}', WRONG_INPUT) from None
    return [text] if name == "schedule.at" else text
