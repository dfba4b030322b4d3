"""`tradewind dead-letter ...`: node tasks that were given up."""

from typing import Annotated

import typer

from tradewind.cli.parameters import Newest, Output, take
from tradewind.cli.screen import Format
from tradewind.cli.session import Session, asynchronous

app = typer.Typer(
    no_args_is_help=True, help="List node tasks that were given up, and run them again.", rich_markup_mode=None
)


@app.command("list")
@asynchronous
async def list_(session: Session, limit: Newest = 20, output: Output = Format.TEXT) -> None:
    """List your dead letters, newest first.

    They are node tasks that lost their worker too often, or failed in all attempts.
    """
    async with session.client() as client:
        letters = await take(session.screen, limit, client.list_dead_letters())
    rows = [
        (
            letter.node_task_id,
            letter.node_type,
            session.screen.when(letter.ended_at),
            str(letter.attempt),
            letter.error.line if letter.error is not None else "",
        )
        for letter in letters
    ]
    session.screen.results(output, letters, ["NODE TASK", "TYPE", "GIVEN UP", "ATTEMPTS", "LAST ERROR"], rows)


@app.command()
@asynchronous
async def redrive(
    session: Session,
    task_ids: Annotated[list[str], typer.Argument(metavar="TASK", help="Ids of ad-hoc tasks, or of items of batches.")],
    output: Output = Format.TEXT,
) -> None:
    """Submit the work of dead letters again, each as a new ad-hoc task.

    Redriving the same dead letter twice returns the same task. Nodes of flows are refused: rerun their cycles.
    """
    async with session.client() as client:
        redriven = await client.redrive_dead_letters(task_ids)
    text = "\n".join(f"submitted {old} again as {new}" for old, new in redriven.items())
    session.screen.result(output, redriven, text)
