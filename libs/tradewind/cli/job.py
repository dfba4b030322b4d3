"""`tradewind job ...`: rerunning or stopping many cycles, on record."""

from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli import completion
from tradewind.cli.failures import FAILED
from tradewind.cli.parameters import Newest, Output, ReasonOption, RequestId, StartedAfter, StartedBefore, one_of, take
from tradewind.cli.parsing import parse_statuses
from tradewind.cli.screen import Format, Screen, counted
from tradewind.cli.session import Session, asynchronous

if TYPE_CHECKING:
    from tradewind.client import BulkJob

app = typer.Typer(no_args_is_help=True, help="Rerun or stop many cycles.", rich_markup_mode=None)

Flows = Annotated[
    list[str],
    typer.Argument(metavar="FLOW", help="Names of flows, or patterns with * and ?.", autocompletion=completion.flows),
]
Statuses = Annotated[
    list[str] | None,
    one_of(
        "running|completed|partial|failed|timeout|cancelled",
        "--status",
        help="Take cycles in this status instead; may be repeated.",
    ),
]
Limit = Annotated[
    int, typer.Option("-n", "--limit", min=1, help="Take at most this many cycles, the newest of each flow first.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only list the matching cycles.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until the job has ended.")]
JobId = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.")]

_ENDS = "With --wait, exits with 1 when the job is cancelled or fails for a cycle."


def _add_command(action: str, help: str) -> None:
    @app.command(action, help=help)
    @asynchronous
    async def start(
        session: Session,
        flows: Flows,
        status: Statuses = None,
        started_after: StartedAfter = None,
        started_before: StartedBefore = None,
        limit: Limit = 1000,
        dry_run: DryRun = False,
        reason: ReasonOption = "",
        wait: Wait = False,
        request_id: RequestId = None,
        output: Output = Format.TEXT,
    ) -> None:
        from tradewind.client import CycleStatus

        async with session.client() as client:
            job = await client.start_bulk_job(
                action,
                flows,
                statuses=parse_statuses(status, CycleStatus),
                started_after=started_after,
                started_before=started_before,
                limit=limit,
                dry_run=dry_run,
                reason=reason,
                request_id=request_id,
            )
            if wait or dry_run:
                client.patience = session.patience
                job = await client.wait_bulk_job(job.job_id)
        session.screen.show(output, job, _show)
        if job.failed or job.status == "cancelled":
            raise typer.Exit(FAILED)


_add_command("rerun", f"Rerun cycles that failed, were partial or timed out.\n\n{_ENDS}")
_add_command("stop", f"Stop running cycles.\n\n{_ENDS}")


@app.command()
@asynchronous
async def show(session: Session, job_id: JobId, output: Output = Format.TEXT) -> None:
    """Show a job."""
    async with session.client() as client:
        job = await client.get_bulk_job(job_id)
    session.screen.show(output, job, _show)


@app.command()
@asynchronous
async def cancel(session: Session, job_id: JobId, output: Output = Format.TEXT) -> None:
    """Cancel a job; what it has done stays done."""
    async with session.client() as client:
        job = await client.cancel_bulk_job(job_id)
    session.screen.show(output, job, _show)


@app.command("list")
@asynchronous
async def list_(session: Session, limit: Newest = 20, output: Output = Format.TEXT) -> None:
    """List jobs, newest first."""
    async with session.client() as client:
        jobs = await take(session.screen, limit, client.list_bulk_jobs())
    rows = [
        (
            each.job_id,
            f"{each.action}{' (dry run)' if each.dry_run else ''}",
            each.status,
            str(each.matched),
            str(each.done),
            str(each.failed),
            session.screen.when(each.created_at),
            each.by,
            " ".join(each.flow_ids[:3]),
        )
        for each in jobs
    ]
    session.screen.results(
        output, jobs, ["JOB", "ACTION", "STATUS", "MATCHED", "DONE", "FAILED", "CREATED", "BY", "FLOWS"], rows
    )


def _show(screen: Screen, job: "BulkJob") -> None:
    would = " (dry run)" if job.dry_run else f", {job.done} done, {job.failed} failed"
    screen.line(f"{job.job_id} {job.action} {job.status}: {counted(job.matched, 'cycle')} matched{would}")
    for item in job.items:
        screen.line(f"  {item.flow_id} cycle {item.cycle}" + (f": {item.error_message}" if item.error_message else ""))
