"""`tradewind bench`: how fast a running stack is."""

from typing import Annotated

import typer

from tradewind.cli.parameters import Output
from tradewind.cli.screen import Format
from tradewind.cli.session import Session, asynchronous


@asynchronous
async def bench(
    session: Session,
    workloads: Annotated[
        list[str] | None, typer.Argument(metavar="WORKLOAD", help="Workloads to run; defaults to all.")
    ] = None,
    scale: Annotated[float, typer.Option(min=0.001, help="Factor for the number of flows of each workload.")] = 1.0,
    output: Output = Format.TEXT,
) -> None:
    """Measure how fast a running stack is.

    Runs flows of no-op nodes with a worker of its own and prints what a client sees.
    """
    from tradewind.cli.bench.command import WORKLOADS, table
    from tradewind.cli.bench.command import bench as measure

    known = [workload.name for workload in WORKLOADS]
    for name in workloads or ():
        if name not in known:
            raise typer.BadParameter(
                f'unknown workload "{name}": choose from {", ".join(known)}', param_hint="WORKLOAD"
            )
    async with session.client() as client:
        # Fails at once when nobody answers, instead of waiting for the worker in vain.
        async for _ in client.list_workers():
            break
    results = await measure(session, workloads or (), scale)
    session.screen.show(output, results, lambda screen, found: screen.console.print(table(found)))
