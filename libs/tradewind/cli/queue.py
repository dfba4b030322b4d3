"""`tradewind queue`: what waits and what runs."""

import heapq
from dataclasses import replace
from typing import Annotated

import typer

from tradewind.cli.parameters import Limit, Output
from tradewind.cli.screen import Format
from tradewind.cli.session import Session, asynchronous


@asynchronous
async def queue(
    session: Session,
    user: Annotated[str, typer.Option(metavar="USER", help="Only node tasks of this user.")] = "",
    type: Annotated[str, typer.Option(metavar="TYPE", help="Only node tasks of this type.")] = "",
    limit: Limit = 100,
    output: Output = Format.TEXT,
) -> None:
    """Show what waits and what runs, by node type and user.

    If there are more queues than --limit, these are the longest.
    """
    async with session.client() as client:
        found = await client.queue_statistics(user_id=user, node_type=type)
    screen = session.screen
    if len(found.queues) > limit:
        screen.notes(["there are more queues; --limit shows them"])
    longest = heapq.nlargest(limit, found.queues, key=lambda each: (each.queued, each.running))
    shown = sorted(longest, key=lambda each: (each.node_type, each.user_id))
    if output is Format.JSON:
        screen.json(replace(found, queues=tuple(shown)))
        return
    rows = [
        (each.node_type, each.user_id, str(each.queued), str(each.running), screen.when(each.first_ready_at))
        for each in shown
    ]
    screen.table(["NODE TYPE", "USER", "QUEUED", "RUNNING", "WAITING SINCE"], rows)
    screen.line(f"{found.queued} queued, {found.running} running")
    codes = ", ".join(f"{code} {count}" for code, count in sorted(found.failed_by_code.items()))
    screen.line(
        f"ended so far: {found.completed} completed, {found.failed} failed{f' ({codes})' if codes else ''}, "
        f"{found.terminated} terminated, {found.skipped} skipped"
    )
    screen.line(
        f"cleaned so far: {found.cleaned_runs} runs with {found.cleaned_node_tasks} node tasks, "
        f"{found.cleaned_entries} index entries"
    )
