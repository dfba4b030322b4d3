"""`tradewind login`, `logout`, `whoami`, `token ...` and `user ...`: who is calling, and what they may do."""

import platform
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli.failures import fail
from tradewind.cli.parameters import Limit, Output, take
from tradewind.cli.parsing import parse_duration
from tradewind.cli.screen import Format, Screen
from tradewind.cli.session import Session, asynchronous
from tradewind.cli.stored_tokens import store_token, stored_token

if TYPE_CHECKING:
    from tradewind.client import QuotaRecord, SessionRecord

tokens = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Create, list and revoke tokens and sessions.")
users = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Manage users, their roles and quotas.")

User = Annotated[str, typer.Option("--user", metavar="USER", help="Id of the user; defaults to you.")]


class RoleName(StrEnum):
    """The roles that users can have."""

    ADMIN = "admin"
    OPERATOR = "operator"
    USER = "user"
    WORKER = "worker"


@asynchronous
async def login(
    session: Session,
    token: Annotated[str | None, typer.Option(metavar="TOKEN", help="The token to log in with.")] = None,
    token_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Read the token from this file.")] = None,
    output: Output = Format.TEXT,
) -> None:
    """Log in with a token and keep the session for this address.

    Without --token and --token-file, takes the token in TRADEWIND_TOKEN, or else asks for one, or reads it from a pipe.
    """
    from tradewind.grpc_engine.bearer import token_of

    if token is not None and token_file is not None:
        raise typer.BadParameter("give --token or --token-file, not both", param_hint="--token-file")
    if token_file is not None:
        token = token_file.read_text(encoding="utf-8").strip()
        if not token:
            raise ValueError(f"{token_file} is empty: it must hold a token")
    given = token_of(token) or _asked_token()
    async with session.client(given) as client:
        me = await client.who_am_i()
        new_token = await client.log_in(label=f"login from {platform.node()}"[:128])
    store_token(session.addresses.access, new_token.token)
    address = session.addresses.access
    session.screen.result(
        output,
        {"user_id": me.user_id, "role": me.role, "address": address},
        f"logged in as {me.user_id} ({me.role}) at {address}",
    )


def _asked_token() -> str:
    if sys.stdin.isatty():
        return str(typer.prompt("Token", hide_input=True))
    token = sys.stdin.readline().strip()
    if not token:
        raise ValueError("stdin is empty: pipe a token to it, or give one with --token or --token-file")
    return token


@asynchronous
async def logout(session: Session, output: Output = Format.TEXT) -> None:
    """End the session kept for this address.

    A token in TRADEWIND_TOKEN stays valid.
    """
    from tradewind.client import TradewindError, Unauthenticated

    address = session.addresses.access
    stored = stored_token(address)
    if stored is None:
        raise fail(f"not logged in at {address}")
    try:
        async with session.client(stored) as client:
            await client.log_out()
    except Unauthenticated:
        # It has ended already.
        pass
    except TradewindError:
        session.screen.notes([f"still logged in at {address}: log out again once the server answers"])
        raise
    store_token(address, None)
    session.screen.result(output, {"address": address}, "logged out")


@asynchronous
async def whoami(session: Session, output: Output = Format.TEXT) -> None:
    """Show who you are, and how much of your daily quotas is used."""
    from tradewind.client import Role

    async with session.client() as client:
        me = await client.who_am_i()
        used = [quota async for quota in client.list_quotas()] if me.role is Role.USER else []
    if output is Format.JSON:
        session.screen.json({"user_id": me.user_id, "role": me.role, "quotas": used})
        return
    session.screen.line(f"{me.user_id} ({me.role})")
    if used:
        _show_quotas(session.screen, used)


def _show_quotas(screen: Screen, used: "list[QuotaRecord]") -> None:
    screen.table(
        ["METHOD", "USED", "LIMIT", "DAY", "ZONE", "RESETS"],
        [
            (each.endpoint, str(each.used), str(each.most), each.date, each.time_zone, screen.when(each.resets_at))
            for each in used
        ],
    )


@tokens.command()
@asynchronous
async def create(
    session: Session,
    user: User = "",
    role: Annotated[RoleName | None, typer.Option(help="Add the user with this role if there is no such user.")] = None,
    label: Annotated[str, typer.Option(metavar="TEXT", help="A note by which to recognize the token.")] = "",
    lifetime: Annotated[
        float,
        typer.Option(
            metavar="DURATION", parser=parse_duration, help="How long it is valid: 12h, 30d; 0 for the longest allowed."
        ),
    ] = 0,
    output: Output = Format.TEXT,
) -> None:
    """Create a token for a program and print it; it is shown only once."""
    async with session.client() as client:
        new_token = await client.create_token(user, role=role, label=label, lifetime=lifetime)
    session.screen.result(output, {"token": new_token.token, "session": new_token.session}, new_token.token)


@tokens.command("list")
@asynchronous
async def list_(session: Session, user: User = "", output: Output = Format.TEXT) -> None:
    """List tokens and sessions."""
    async with session.client() as client:
        found = [each async for each in client.list_sessions(user)]
    rows = [_row(session, each) for each in found]
    columns = ["ID", "USER", "KIND", "CREATED", "LAST USED", "EXPIRES", "NOTE"]
    session.screen.results(output, found, columns, rows)


def _row(session: Session, each: "SessionRecord") -> tuple[str, ...]:
    when = session.screen.when
    times = (when(each.created_at), when(each.last_activity), when(each.expires_at))
    return (each.session_id, each.user_id, each.kind, *times, each.label)


@tokens.command()
@asynchronous
async def revoke(
    session: Session,
    session_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="Id of the token or session, as `token list` shows it.")
    ] = None,
    user: User = "",
    all: Annotated[bool, typer.Option("--all", help="Revoke all tokens and sessions of the user.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Revoke a token or session at once, or all those of a user."""
    if (session_id is None) is not all:
        raise typer.BadParameter("give the id of a token or session, or --all")
    async with session.client() as client:
        if session_id is not None:
            await client.revoke_session(session_id, user_id=user)
            count = 1
        else:
            count = await client.revoke_sessions(user)
    revoked = session_id or ("1 token or session" if count == 1 else f"{count} tokens and sessions")
    session.screen.result(output, {"revoked": count}, f"revoked {revoked}")


@users.command("set")
@asynchronous
async def set_(
    session: Session,
    user_id: Annotated[str, typer.Argument(metavar="USER", help="Id of the user.")],
    role: Annotated[RoleName, typer.Option(help="Role of the user from now on.")],
    time_zone: Annotated[
        str,
        typer.Option(
            metavar="ZONE",
            help="IANA time zone in which the user's days begin, for quotas; UTC for a new user, else unchanged.",
        ),
    ] = "",
    output: Output = Format.TEXT,
) -> None:
    """Add a user, or change a user's role at once."""
    async with session.client() as client:
        user = await client.set_user(user_id, role, time_zone=time_zone)
    session.screen.result(output, user, f"{user.user_id} is {user.role}")


@users.command("quotas")
@asynchronous
async def quotas(
    session: Session,
    user_id: Annotated[str, typer.Argument(metavar="USER", help="Id of the user; defaults to you.")] = "",
    output: Output = Format.TEXT,
) -> None:
    """Show how much of the daily quotas a user has used today."""
    async with session.client() as client:
        used = [quota async for quota in client.list_quotas(user_id)]
    session.screen.show(output, used, _show_quotas)


@users.command("list")
@asynchronous
async def list_users(session: Session, limit: Limit = 100, output: Output = Format.TEXT) -> None:
    """List users."""
    async with session.client() as client:
        found = await take(session.screen, limit, client.list_users())
    rows = [(each.user_id, each.role, session.screen.when(each.updated_at), each.time_zone) for each in found]
    session.screen.results(output, found, ["USER", "ROLE", "CHANGED", "ZONE"], rows)
