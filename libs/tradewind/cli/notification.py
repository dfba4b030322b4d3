"""`tradewind notification ...`: messages to users."""

from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli.parameters import Newest, Output, one_of
from tradewind.cli.parsing import parse_choice, parse_notification
from tradewind.cli.screen import Format, Screen, iso
from tradewind.cli.session import Session, asynchronous

if TYPE_CHECKING:
    from tradewind.client import Notification

app = typer.Typer(no_args_is_help=True, help="Read and send notifications.", rich_markup_mode=None)

_STYLES = {"error": "red", "warning": "yellow"}


@app.command("list")
@asynchronous
async def list_(
    session: Session,
    limit: Newest = 20,
    unread: Annotated[bool, typer.Option("--unread", help="Only unread notifications.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """List your notifications, newest first."""
    found: list[Notification] = []
    async with session.client() as client:
        async for each in client.list_notifications():
            # Everything older than a read notification is read as well.
            if len(found) == limit or (unread and each.read):
                break
            found.append(each)
        count = await client.count_unread_notifications()
    if output is Format.JSON:
        session.screen.json({"notifications": found, "unread": count})
        return
    rows = [
        (each.notification_id, session.screen.when(each.created_at), "" if each.read else "new", str(each))
        for each in found
    ]
    session.screen.table(["ID", "SENT", "", "NOTIFICATION"], rows)
    session.screen.line(f"{count} unread")


@app.command()
@asynchronous
async def watch(
    session: Session,
    after: Annotated[
        str,
        typer.Option(
            metavar="ID", parser=parse_notification, help="Start with the notifications after this one, 0-0 with all."
        ),
    ] = "",
    count: Annotated[int, typer.Option(min=0, help="Exit after this many; 0 runs until Ctrl-C.")] = 0,
    output: Output = Format.TEXT,
) -> None:
    """Show your notifications as they arrive, until Ctrl-C."""
    shown = 0
    async with session.client() as client:
        client.patience = session.patience
        async with aclosing(client.watch_notifications(after=after)) as notifications:
            async for each in notifications:
                session.screen.show_next(output, each, _describe)
                shown += 1
                if shown == count:
                    return


def _describe(screen: Screen, notification: "Notification") -> None:
    if notification.gap:
        screen.line("some earlier notifications are no longer kept", "yellow")
    at = iso(notification.created_at) if notification.created_at else "-"
    screen.line(f"{at}  {notification}", _STYLES.get(notification.severity))


@app.command()
@asynchronous
async def read(
    session: Session,
    through: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            parser=parse_notification,
            help="Mark this notification and all earlier ones; defaults to all.",
        ),
    ] = "",
    output: Output = Format.TEXT,
) -> None:
    """Mark notifications as read."""
    async with session.client() as client:
        unread = await client.mark_notifications_read(through)
    session.screen.result(output, {"unread": unread}, f"{unread} unread")


@app.command()
@asynchronous
async def send(
    session: Session,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="The notification in one line.")],
    message: Annotated[str, typer.Option(metavar="TEXT", help="Details.")] = "",
    user: Annotated[str | None, typer.Option(metavar="USER", help="The user to notify; defaults to you.")] = None,
    severity: Annotated[str, one_of("info|warning|error", "--severity", help="How serious it is.")] = "info",
    key: Annotated[
        str, typer.Option(metavar="KEY", help="Do not send it if one with this key was sent within 24 h.")
    ] = "",
    output: Output = Format.TEXT,
) -> None:
    """Send a notification to yourself or another user."""
    from tradewind.client import Severity

    parse_choice(severity, Severity, "--severity")
    async with session.client() as client:
        kept = await client.send_notification(title, message, user_id=user, severity=severity, key=key)
    text = "sent" if kept else "not sent: one with this key was sent within 24 h"
    session.screen.result(output, {"kept": kept}, text)
