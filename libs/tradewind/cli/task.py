"""`tradewind task ...`: single node tasks."""

from contextlib import aclosing
from typing import Annotated

import typer

from tradewind.cli.failures import FAILED, fail
from tradewind.cli.parameters import (
    Attempts,
    CacheName,
    ConcurrencyText,
    Newest,
    NodeTypeName,
    Output,
    Patience,
    Priority,
    RateText,
    ReasonOption,
    RequestId,
    RequireWorker,
    Wait,
    only_in_status,
    take,
)
from tradewind.cli.parsing import (
    check_patience,
    parse_concurrency,
    parse_json,
    parse_object,
    parse_rate,
    parse_statuses,
    parse_values,
)
from tradewind.cli.screen import STYLES, Format
from tradewind.cli.session import Session, asynchronous

app = typer.Typer(no_args_is_help=True, help="Run single nodes; show and stop node tasks.", rich_markup_mode=None)

TaskId = Annotated[
    str,
    typer.Argument(metavar="TASK", help="Id of the node task: FLOW:CYCLE:RUN:NODE[:ITEM], task:ID or batch:ID:ITEM."),
]

AD_HOC = "task:"


@app.command()
@asynchronous
async def submit(
    session: Session,
    node_type: NodeTypeName,
    param: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A parameter, as JSON or plain text; may be repeated.")
    ] = None,
    params_json: Annotated[
        str | None, typer.Option(metavar="JSON", help="All parameters as a JSON object; - reads stdin.")
    ] = None,
    wait: Wait = False,
    timeout: Patience = None,
    require_worker: RequireWorker = False,
    attempts: Attempts = 1,
    priority: Priority = 0,
    concurrency: ConcurrencyText = None,
    rate: RateText = None,
    cache: CacheName = None,
    request_id: RequestId = None,
    output: Output = Format.TEXT,
) -> None:
    """Run a single node, outside any flow.

    With --wait, exits with 1 unless it completes.
    """
    from tradewind.cli.descriptions import show_node_task
    from tradewind.cli.outcomes import noting_that_it_continues
    from tradewind.client import TimedOut
    from tradewind.flow import Retry

    check_patience(wait, timeout)
    parameters = parse_object(params_json, "--params-json") | parse_values(param, "--param")
    async with session.client() as client:
        handle = await client.submit_task(
            node_type,
            parameters,
            require_worker=require_worker,
            retry=Retry(attempts) if attempts > 1 else None,
            priority=priority,
            concurrency=parse_concurrency(concurrency),
            rate=parse_rate(rate),
            cache=cache,
            request_id=request_id,
        )
        session.screen.notes(handle.warnings if output is Format.TEXT else ())
        if not wait:
            session.screen.result(
                output, {"task": handle.record, "warnings": handle.warnings}, f"submitted {handle.task_id}"
            )
            return
        client.patience = session.patience
        try:
            with noting_that_it_continues(session.screen, handle.task_id, f"task cancel {handle.task_id}"):
                task = await handle.wait(timeout)
        except TimedOut:
            raise fail(f"{handle.task_id} has not ended after {timeout:g} s and continues") from None
    session.screen.show(output, task, show_node_task)
    if task.status != "completed":
        raise typer.Exit(FAILED)


@app.command()
@asynchronous
async def watch(
    session: Session,
    task_id: TaskId,
    after: Annotated[
        str, typer.Option(metavar="EVENT", help="Start with the events after this one; 0-0 starts with all.")
    ] = "",
    output: Output = Format.TEXT,
) -> None:
    """Show what happens to a node task, until it has ended.

    Exits with 1 unless it completes.
    """
    from tradewind.cli.descriptions import show_task_event

    async with session.client() as client:
        client.patience = session.patience
        async with aclosing(client.watch_task(task_id, after=after)) as states:
            async for task in states:
                session.screen.show_next(output, task, show_task_event)
    if task.status != "completed":
        raise typer.Exit(FAILED)


@app.command("list")
@asynchronous
async def list_(
    session: Session,
    status: Annotated[
        list[str] | None,
        only_in_status("tasks", "registered|pending|running|suspended|completed|failed|terminated|skipped"),
    ] = None,
    limit: Newest = 20,
    output: Output = Format.TEXT,
) -> None:
    """List your ad-hoc tasks, newest first."""
    from tradewind.cli.descriptions import note
    from tradewind.client import NodeTaskStatus

    statuses = parse_statuses(status, NodeTaskStatus)
    async with session.client() as client:
        tasks = await take(session.screen, limit, client.list_tasks(statuses=statuses))
    rows = [
        (task.node_task_id, task.node_type, task.status, session.screen.when(task.registered_at), note(task))
        for task in tasks
    ]
    session.screen.results(output, tasks, ["TASK", "TYPE", "STATUS", "SUBMITTED", "NOTE"], rows)


@app.command()
@asynchronous
async def cancel(session: Session, task_id: TaskId, reason: ReasonOption = "", output: Output = Format.TEXT) -> None:
    """Cancel an ad-hoc task.

    A task that has not begun is skipped; a running one is asked to stop.
    """
    from tradewind.cli.descriptions import show_stopped

    async with session.client() as client:
        task = await client.cancel_task(task_id, reason=reason)
    show_stopped(session.screen, output, task_id, task)


@app.command()
@asynchronous
async def logs(
    session: Session,
    id: Annotated[str, typer.Argument(metavar="ID", help="Id of an ad-hoc task (task:ID) or of a batch.")],
    output: Output = Format.TEXT,
) -> None:
    """Show what an ad-hoc task, or the items of a batch, logged."""
    from tradewind.cli.descriptions import show_log_line

    if ":" in id and not id.startswith(AD_HOC):
        raise typer.BadParameter("give task:ID or the id of a batch; for a node of a flow, use tradewind flow logs")
    async with session.client() as client:
        found = [line async for line in client.list_task_logs(id)]
    if output is Format.JSON:
        session.screen.json(found)
        return
    for line in found:
        show_log_line(session.screen, line)


@app.command()
@asynchronous
async def show(session: Session, task_id: TaskId, output: Output = Format.TEXT) -> None:
    """Show a node task."""
    from tradewind.cli.descriptions import show_node_task

    async with session.client() as client:
        task = await (client.get_task(task_id) if task_id.startswith(AD_HOC) else client.get_node_task(task_id))
    session.screen.show(output, task, show_node_task)


@app.command()
@asynchronous
async def signal(
    session: Session,
    task_id: TaskId,
    signal: Annotated[
        str,
        typer.Option(
            "--signal", metavar="NAME", help="Name of the signal; defaults to the one that the node task waits for."
        ),
    ] = "",
    payload_json: Annotated[
        str | None, typer.Option("--payload-json", metavar="JSON", help="Payload of the signal; - reads stdin.")
    ] = None,
    only_if_waiting: Annotated[
        bool,
        typer.Option("--only-if-waiting", help="Refuse the signal if the node does not wait, instead of keeping it."),
    ] = False,
    request_id: RequestId = None,
    output: Output = Format.TEXT,
) -> None:
    """Send a signal to a node task that waits for one, or will.

    The node task continues with the payload; if it does not wait yet, it gets the signal once it does.
    """
    value = parse_json(payload_json, "--payload-json")
    async with session.client() as client:
        task = await client.signal_node(
            task_id, signal, value, request_id=request_id or "", only_if_waiting=only_if_waiting
        )
    session.screen.result(
        output, task, f"{task_id} received the signal; its status is {task.status}", STYLES.get(task.status)
    )


@app.command()
@asynchronous
async def terminate(session: Session, task_id: TaskId, reason: ReasonOption = "", output: Output = Format.TEXT) -> None:
    """Stop a node task.

    A task that has not begun is skipped; a running one is asked to stop.
    """
    from tradewind.cli.descriptions import show_stopped

    async with session.client() as client:
        task = await client.terminate_node_task(task_id, reason=reason)
    show_stopped(session.screen, output, task_id, task)
