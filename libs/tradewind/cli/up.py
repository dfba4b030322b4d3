"""`tradewind up`: the whole stack in one process."""

from pathlib import Path
from typing import Annotated

import typer

from tradewind.cli.session import Session, blocking


@blocking
def up(
    session: Session,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to serve on; 0 picks a free one. [7700]")
    ] = None,
    host: Annotated[
        str | None, typer.Option(metavar="HOST", help="Address to serve on; 0.0.0.0 for every interface.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", file_okay=False, help="Directory for all data. [.tradewind]")
    ] = None,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="Use this Redis or Valkey instead of an embedded store.")
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option("--node-task-manager-shards", min=1, help="Number of node task shards; cannot be changed later."),
    ] = None,
    auth: Annotated[
        bool | None,
        typer.Option("--auth/--no-auth", help="Require a token for calls; prints the first admin's token once. [no]"),
    ] = None,
) -> None:
    """Run the whole stack, until Ctrl-C.

    Runs every service and a store in one process; the data is kept. Settings of services come from the environment:
    docs/operations.md says which.
    """
    from tradewind.standalone import Standalone
    from tradewind.standalone.process import run

    code = run(
        lambda: Standalone(data, host=host, port=port, store_url=store, node_task_manager_shards=shards, auth=auth)
    )
    if code:
        raise typer.Exit(code)
