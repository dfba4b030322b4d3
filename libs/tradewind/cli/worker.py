"""`tradewind worker MODULE...` runs a worker; `tradewind worker list` lists workers, `drain` makes one leave."""

import gc
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from tradewind.cli.failures import WRONG_INPUT, fail
from tradewind.cli.parameters import Labels, Output, length_of, pairs
from tradewind.cli.screen import Format
from tradewind.cli.session import Session, asynchronous, blocking

if TYPE_CHECKING:
    from tradewind.client import WorkerRecord


class RunUnlessNamed(TyperGroup):
    """A group in which `worker MODULE` means `worker run MODULE`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=RunUnlessNamed,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Run a worker, list workers or drain one.\n\n`worker MODULE...` is short for `worker run MODULE...`.",
    subcommand_metavar="MODULE... | COMMAND [ARGS]...",
)


@app.command()
@blocking
def run(
    session: Session,
    modules: Annotated[list[str], typer.Argument(metavar="MODULE[:ATTRIBUTE]...", help="Where the nodes are.")],
    capacity: Annotated[
        int | None,
        typer.Option(min=1, max=10_000, help="Node tasks held at most; 100, or without async nodes what can run."),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Plain functions that run at once.")] = 32,
    processes: Annotated[
        int | None, typer.Option(min=0, help="Nodes with process=True that run at once; one for each processor.")
    ] = None,
    grace: Annotated[
        float,
        typer.Option(metavar="TIME", parser=length_of, help="What nodes have to finish on Ctrl-C: 20, 20s, 5m."),
    ] = 10.0,
    worker_id: Annotated[str | None, typer.Option("--id", help="Its id; made up when left out.")] = None,
    label: Labels = None,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Be called there instead of opening a stream; port 0 for a free one."),
    ] = None,
    api_url: Annotated[
        str | None, typer.Option(help="Where others reach it, when that is not the address it listens on.")
    ] = None,
) -> None:
    """Run a worker, until Ctrl-C or SIGTERM."""
    from tradewind.worker import Worker, WorkerError, load_nodes
    from tradewind.worker.telemetry import configure_worker_logging

    try:
        configure_worker_logging()
        nodes = [node for module in modules for node in load_nodes(module)]
        addresses = session.addresses
        worker = Worker(
            nodes,
            address=addresses.node_task_manager,
            registry_address=addresses.registry,
            scheduler_address=addresses.scheduler,
            worker_id=worker_id,
            capacity=capacity,
            thread_capacity=threads,
            process_capacity=processes,
            grace=grace,
            labels=pairs(label, "--label"),
            listen=listen,
            api_url=api_url,
            credentials=session.tls,
            codec=session.codec,
            token=session.token,
        )
    except WorkerError as error:
        raise fail(str(error), WRONG_INPUT) from None
    session.screen.line(f"worker {worker.worker_id} offers {', '.join(sorted(node.type for node in worker.nodes))}")
    # What is loaded now stays for good: the collector need not scan it again and again.
    gc.collect()
    gc.freeze()
    try:
        worker.run()
    except WorkerError as error:
        raise fail(str(error)) from None


@app.command("list")
@asynchronous
async def list_(
    session: Session,
    all: Annotated[bool, typer.Option("--all", help="Also those that are out but on record.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """List workers.

    A worker that is "not connected" gets no work, even though its last heartbeat is recent.
    """
    from tradewind.cli.plain import plain
    from tradewind.client import TradewindError

    async with session.client() as client:
        workers = [worker async for worker in client.list_workers(include_offline=all)]
        try:
            since = await client.list_connections([worker.worker_id for worker in workers])
        except TradewindError:
            # The registry's list is useful even without the node task manager.
            since = None
    if output is Format.JSON:
        session.screen.json(
            [{**plain(each), "connected_since": since.get(each.worker_id) if since else None} for each in workers]
        )
        return
    if not workers and session.screen.terminal:
        session.screen.line("no workers; start one with: tradewind worker MODULE", "dim")
        return
    rows = [
        (
            worker.worker_id,
            "not connected" if since is not None and _is_missed(worker, since) else worker.status,
            f"{worker.running}/{worker.capacity}",
            session.screen.when(worker.last_heartbeat),
            f"{worker.host}:{worker.pid}" if worker.host else "",
            worker.api_url or "-",
            ",".join(worker.node_types),
        )
        for worker in workers
    ]
    session.screen.table(["WORKER", "STATUS", "LOAD", "LAST BEAT", "PROCESS", "CALLED AT", "NODE TYPES"], rows)


def _is_missed(worker: "WorkerRecord", since: "Collection[str]") -> bool:
    """Return whether a worker has a recent heartbeat but is not connected."""
    return worker.status != "offline" and worker.worker_id not in since


@app.command()
@asynchronous
async def drain(
    session: Session,
    worker_id: Annotated[str, typer.Argument(metavar="WORKER", help="Its id.")],
    output: Output = Format.TEXT,
) -> None:
    """Ask a worker to take no new work, finish what it runs, and leave.

    The worker learns of this with its next heartbeat.
    """
    async with session.client() as client:
        worker = await client.drain_worker(worker_id)
        running = len([each async for each in client.list_worker_tasks(worker_id)])
    if output is Format.JSON:
        session.screen.json(worker)
        return
    session.screen.line(f"worker {worker.worker_id} is {worker.status}, with {running} node tasks to finish")
