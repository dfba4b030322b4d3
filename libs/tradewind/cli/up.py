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
    host: Annotated[str | None, typer.Option(help="Address to serve on; 0.0.0.0 for every interface.")] = None,
    data: Annotated[Path | None, typer.Option(help="Directory in which everything is kept. [.tradewind]")] = None,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="Use this Redis or Valkey in place of one of its own.")
    ] = None,
    shards: Annotated[
        int | None, typer.Option("--node-task-manager-shards", min=1, help="Shards of node tasks; fixed once set.")
    ] = None,
    auth: Annotated[
        bool | None, typer.Option("--auth/--no-auth", help="Calls need a token; prints the first admin's once. [no]")
    ] = None,
) -> None:
    """Run the whole stack, until Ctrl-C.

    Runs every service and a store in one process; the data is kept.
    """
    from tradewind.standalone.process import run

    code = run(data, host=host, port=port, store_url=store, node_task_manager_shards=shards, auth=auth)
    if code:
        raise typer.Exit(code)
