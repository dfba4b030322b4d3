"""`tradewind event ...`: tell flows and triggers that something happened."""

from typing import Annotated

import typer

from tradewind.cli.parameters import Output
from tradewind.cli.parsing import parse_object, parse_values
from tradewind.cli.screen import Format
from tradewind.cli.session import Session, asynchronous

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Tell flows and triggers that something happened.")


@app.callback()
def group() -> None:
    """Tell flows and triggers that something happened."""


@app.command()
@asynchronous
async def publish(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the event.")],
    field: Annotated[
        list[str] | None,
        typer.Option(
            "--field", metavar="KEY=VALUE", help="A field of the payload, as JSON or plain text; may be repeated."
        ),
    ] = None,
    payload_json: Annotated[
        str | None,
        typer.Option("--payload-json", metavar="JSON", help="The whole payload as a JSON object; - reads stdin."),
    ] = None,
    id: Annotated[
        str,
        typer.Option(
            "--id",
            metavar="ID",
            help="Id of the event; within 24 h, the same id begins no cycle and fires no trigger twice.",
        ),
    ] = "",
    output: Output = Format.TEXT,
) -> None:
    """Publish an event to the flows and triggers that listen for it.

    It begins a cycle of every flow, and fires every trigger, that listens for its name and whose filter it matches.
    """
    payload = parse_object(payload_json, "--payload-json") | parse_values(field, "--field")
    async with session.client() as client:
        published = await client.publish_event(name, payload, event_id=id)
    more = f", {published.duplicates} had already fired for it" if published.duplicates else ""
    more += f", {published.dropped} dropped because too many firings wait" if published.dropped else ""
    match = "trigger matches" if published.matched == 1 else "triggers match"
    became = f"{published.matched} {match}, {published.fired} fired{more}"
    if published.listeners == 0:
        became = f'nobody listens to "{name}"'
    session.screen.result(output, published, f"event {published.event_id}: {became}")
