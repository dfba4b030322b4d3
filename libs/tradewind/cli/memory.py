"""`tradewind flow memory`: the variables that nodes keep."""

from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli.parameters import FlowName, Output
from tradewind.cli.parsing import parse_values
from tradewind.cli.screen import Format, Screen
from tradewind.cli.session import Session, asynchronous

if TYPE_CHECKING:
    from tradewind.client import MemoryRecord

app = typer.Typer()


@app.command()
@asynchronous
async def memory(
    session: Session,
    name: FlowName,
    cycle: Annotated[
        int | None, typer.Option(min=0, help="Use the variables of this cycle instead of the flow's.")
    ] = None,
    assigned: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Set a variable, as JSON or plain text; may be repeated."),
    ] = None,
    delete: Annotated[
        list[str] | None, typer.Option("--delete", metavar="NAME", help="Delete a variable; may be repeated.")
    ] = None,
    expect: Annotated[
        int | None, typer.Option(metavar="VERSION", help="Change variables only if they are at this version.")
    ] = None,
    output: Output = Format.TEXT,
) -> None:
    """Print the variables of a flow, or of one of its cycles.

    A flow carries its variables from cycle to cycle. --set and --delete change variables first: all together, or none.
    """
    values = parse_values(assigned, "--set")
    if expect is not None and not (values or delete):
        raise typer.BadParameter("it needs --set or --delete", param_hint="--expect")
    async with session.client() as client:
        if values or delete:
            await client.update_memory(name, values, delete=delete or (), cycle=cycle, expected_version=expect)
        found = await client.get_memory(name, cycle=cycle)
    session.screen.show(output, found, _describe)


def _describe(screen: Screen, memory: "MemoryRecord") -> None:
    from tradewind.cli.plain import to_json

    for variable, value in sorted(memory.variables.items()):
        screen.line(f"{variable} = {to_json(value)}")
    screen.line(f"version {memory.version}", "dim")
