"""`tradewind trigger ...`: triggers that fire at a time or for an event, and are received from a queue."""

import json
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli import completion
from tradewind.cli.parameters import IN_UTC, Limit, Newest, Output, one_of, take
from tradewind.cli.parsing import parse_duration, parse_json, parse_object, parse_time
from tradewind.cli.screen import Format, Screen, planned
from tradewind.cli.session import Session, asynchronous

if TYPE_CHECKING:
    from tradewind.client import DueTrigger, TriggerRecord

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Manage your own triggers: at a time, by cron, for events.\n\nReceivers take them from a queue.",
)

Queue = Annotated[str, typer.Option("--queue", "-q", metavar="QUEUE", help="Queue from which triggers are received.")]
TriggerName = Annotated[
    str, typer.Argument(metavar="ID", help="Id of the trigger.", autocompletion=completion.triggers)
]
PayloadJson = Annotated[
    str | None, typer.Option("--payload-json", metavar="JSON", help="Payload for the receiver; - reads stdin.")
]

_ANY_FLOW = "*"
"""Stands for any flow; no flow can have this name."""


def _describe(screen: Screen, trigger: "TriggerRecord") -> None:
    facts = [
        ("trigger", trigger.trigger_id),
        ("queue", trigger.queue),
        ("fires", trigger.schedule),
        ("status", f"{trigger.status}{f' ({trigger.pause_note})' if trigger.pause_note else ''}"),
        ("next", screen.when(trigger.next_fire_time)),
        ("fired", str(trigger.fired)),
        ("pending", f"{trigger.pending}{f', {trigger.dropped} dropped' if trigger.dropped else ''}"),
        ("failures", f"{trigger.failures}: {trigger.last_error}" if trigger.failures else ""),
    ]
    screen.facts(facts)


@app.command()
@asynchronous
async def save(
    session: Session,
    trigger_id: TriggerName,
    queue: Queue,
    at: Annotated[
        list[datetime] | None,
        typer.Option(metavar="TIME", parser=parse_time, help=f"Fire at this time{IN_UTC}; may be repeated."),
    ] = None,
    after: Annotated[
        float | None,
        typer.Option(metavar="DURATION", parser=parse_duration, help="Fire once, this long from now: 20, 20s, 5m."),
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(
            metavar="DURATION",
            parser=parse_duration,
            help="Fire repeatedly at this interval, from --start on, or else one interval from now.",
        ),
    ] = None,
    cron: Annotated[
        str, typer.Option(metavar="CRON", help='Fire by this cron expression, such as "30 9 * * 1-5".')
    ] = "",
    time_zone: Annotated[
        str, typer.Option(metavar="ZONE", help="IANA time zone of --cron, such as Europe/Berlin; defaults to UTC.")
    ] = "",
    event: Annotated[str, typer.Option(metavar="NAME", help="Fire for each event of this name.")] = "",
    where: Annotated[
        str | None,
        typer.Option(
            "--filter", metavar="JSON", help='With --event: only events that match, as in {"price": {"$gt": 100}}.'
        ),
    ] = None,
    on_finished: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FLOW",
            help='Fire when a cycle of this flow has ended, "*" for any flow; may be repeated.',
            autocompletion=completion.flows,
        ),
    ] = None,
    status: Annotated[
        list[str] | None,
        one_of(
            "completed|partial|failed|timeout|cancelled",
            "--status",
            help="With --on-finished: only cycles that ended with this status; may be repeated.",
        ),
    ] = None,
    payload_json: PayloadJson = None,
    jitter: Annotated[
        float,
        typer.Option(metavar="DURATION", parser=parse_duration, help="Fire up to this much later, to spread load."),
    ] = 0,
    start: Annotated[
        datetime | None,
        typer.Option(metavar="TIME", parser=parse_time, help=f"Do not fire before this time{IN_UTC}."),
    ] = None,
    end: Annotated[
        datetime | None,
        typer.Option(metavar="TIME", parser=parse_time, help=f"Do not fire at or after this time{IN_UTC}."),
    ] = None,
    max_firings: Annotated[int, typer.Option(min=0, help="Fire at most this many times; 0 means no limit.")] = 0,
    epoch: Annotated[int, typer.Option(min=0, help="A higher epoch restarts a completed trigger.")] = 0,
    output: Output = Format.TEXT,
) -> None:
    """Create or replace a trigger.

    Saving the same again changes nothing.
    """
    moments = at or []
    kinds = [bool(moments), after is not None, every is not None, bool(cron), bool(event), on_finished is not None]
    if kinds.count(True) != 1:
        raise typer.BadParameter("give exactly one of --at, --after, --every, --cron, --event and --on-finished")
    for option, kind, alone in (
        ("--time-zone", "--cron", bool(time_zone) and not cron),
        ("--filter", "--event", where is not None and not event),
        ("--status", "--on-finished", bool(status) and on_finished is None),
    ):
        if alone:
            raise typer.BadParameter(f"it needs {kind}", param_hint=option)
    async with session.client() as client:
        saved = await client.save_trigger(
            trigger_id,
            queue=queue,
            at=moments[0] if len(moments) == 1 else None,
            times=moments if len(moments) > 1 else (),
            after=after,
            every=every,
            cron=cron,
            time_zone=time_zone,
            event=event,
            filter=parse_object(where, "--filter"),
            on_finished=[] if _ANY_FLOW in (on_finished or ()) else on_finished,
            statuses=status or (),
            payload=parse_json(payload_json, "--payload-json"),
            jitter=jitter,
            start=start,
            end=end,
            max_firings=max_firings,
            epoch=epoch,
        )
    session.screen.show(output, saved, _describe)


@app.command("list")
@asynchronous
async def list_(session: Session, queue: Queue, limit: Limit = 100, output: Output = Format.TEXT) -> None:
    """List the triggers of a queue, whatever their status."""
    async with session.client() as client:
        found = await take(session.screen, limit, client.list_triggers(queue))
    screen = session.screen
    rows = [
        (each.trigger_id, each.status.value, each.schedule, screen.when(each.next_fire_time), str(each.fired))
        for each in found
    ]
    screen.results(output, found, ["TRIGGER", "STATUS", "FIRES", "NEXT", "FIRED"], rows)


@app.command()
@asynchronous
async def show(session: Session, trigger_id: TriggerName, queue: Queue, output: Output = Format.TEXT) -> None:
    """Show a trigger."""
    async with session.client() as client:
        session.screen.show(output, await client.get_trigger(queue, trigger_id), _describe)


@app.command()
@asynchronous
async def remove(
    session: Session,
    trigger_id: TriggerName,
    queue: Queue,
    epoch: Annotated[int, typer.Option(min=0, help="Refuse if this is lower than the epoch of the trigger.")] = 0,
    output: Output = Format.TEXT,
) -> None:
    """Remove a trigger and all its waiting firings."""
    async with session.client() as client:
        removed = await client.remove_trigger(queue, trigger_id, epoch=epoch)
    session.screen.result(
        output,
        {"trigger_id": trigger_id, "removed": removed},
        f"removed {trigger_id}" if removed else f"there is no trigger {trigger_id}",
    )


@app.command()
@asynchronous
async def fire(
    session: Session,
    trigger_id: TriggerName,
    queue: Queue,
    payload_json: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="JSON object to deliver as the payload of an event; - reads stdin."),
    ] = None,
    request_id: Annotated[
        str, typer.Option(metavar="ID", help="Repeating a request with the same id fires only once.")
    ] = "",
    output: Output = Format.TEXT,
) -> None:
    """Fire a trigger once now, in addition to its planned times."""
    payload = parse_object(payload_json, "--payload-json")
    async with session.client() as client:
        fired = await client.fire_trigger(queue, trigger_id, payload, request_id=request_id)
    session.screen.result(
        output,
        {"trigger_id": trigger_id, "fired": fired},
        f"fired {trigger_id}" if fired else f"{trigger_id} was already fired by this request",
    )


@app.command()
@asynchronous
async def pause(
    session: Session,
    trigger_id: TriggerName,
    queue: Queue,
    note: Annotated[str, typer.Option(metavar="TEXT", help="Who paused it, and why.")] = "",
    output: Output = Format.TEXT,
) -> None:
    """Keep a trigger from firing until it is resumed."""
    async with session.client() as client:
        session.screen.show(output, await client.pause_trigger(queue, trigger_id, note), _describe)


@app.command()
@asynchronous
async def resume(session: Session, trigger_id: TriggerName, queue: Queue, output: Output = Format.TEXT) -> None:
    """Let a paused trigger fire again."""
    async with session.client() as client:
        session.screen.show(output, await client.resume_trigger(queue, trigger_id), _describe)


@app.command()
@asynchronous
async def firings(
    session: Session,
    queue: Queue,
    trigger: Annotated[str, typer.Option(metavar="ID", help="Only firings of this trigger.")] = "",
    limit: Newest = 20,
    output: Output = Format.TEXT,
) -> None:
    """List how firings ended, newest first."""
    async with session.client() as client:
        found = await take(session.screen, limit, client.list_trigger_firings(queue, trigger))
    screen = session.screen
    rows = [
        (each.trigger_id, planned(each.planned_time), each.outcome, screen.when(each.ended_at), each.event_id)
        for each in found
    ]
    screen.results(output, found, ["TRIGGER", "PLANNED", "OUTCOME", "ENDED", "EVENT"], rows)


@app.command()
@asynchronous
async def dead(session: Session, queue: Queue, limit: Limit = 20, output: Output = Format.TEXT) -> None:
    """List triggers and firings that were refused too often.

    They do not fire until `redrive` makes them due again.
    """
    async with session.client() as client:
        found = await take(session.screen, limit, client.list_dead_triggers(queue))
    rows = [(each.trigger_id, each.firing_id, str(each.failures), each.last_error) for each in found]
    session.screen.results(output, found, ["TRIGGER", "FIRING", "FAILURES", "LAST ERROR"], rows)


@app.command()
@asynchronous
async def redrive(
    session: Session,
    trigger_id: TriggerName,
    queue: Queue,
    firing: Annotated[
        str, typer.Option(metavar="FIRING", help="A single dead firing, as `trigger dead` lists it.")
    ] = "",
    output: Output = Format.TEXT,
) -> None:
    """Make a dead trigger or firing due again."""
    async with session.client() as client:
        await client.redrive_trigger(queue, trigger_id, firing)
    session.screen.result(
        output, {"trigger_id": trigger_id, "firing_id": firing}, f"{firing or trigger_id} is due again"
    )


@app.command()
@asynchronous
async def listen(
    session: Session,
    queue: Queue,
    count: Annotated[int, typer.Option(min=0, help="Exit after this many; 0 runs until Ctrl-C.")] = 0,
    output: Output = Format.TEXT,
) -> None:
    """Receive, print and acknowledge due triggers of a queue."""
    received = 0
    async with session.client() as client:
        client.patience = session.patience
        async with client.receive_due(queue, receiver="tradewind trigger listen") as due_triggers:
            async for due in due_triggers:
                received += 1
                _show_due(session.screen, due, output)
                await due.ack()
                if received == count:
                    return


def _show_due(screen: Screen, due: "DueTrigger", output: Format) -> None:
    if output is Format.JSON:
        record = {
            "trigger_id": due.trigger_id,
            "planned_time": due.planned_time,
            "payload": due.payload,
            "event_id": due.event_id,
            "event": due.event,
        }
        screen.json_line(record)
    else:
        event = f" for event {due.event_id}" if due.event_id else ""
        given = "".join(f": {json.dumps(each)}" for each in (due.payload, due.event) if each is not None)
        screen.line(f"{due.trigger_id}, planned {planned(due.planned_time)}{event}{given}")
