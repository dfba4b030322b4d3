"""`tradewind backup`: copying a store while it runs, checking the copies, and restoring one."""

import os
import signal
import sys
import threading
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli.failures import TERMINATED, WRONG_INPUT, fail, text_of
from tradewind.cli.parameters import Output
from tradewind.cli.screen import Format, counted, iso
from tradewind.cli.session import Session, asynchronous, blocking

if TYPE_CHECKING:
    from tradewind.server.redis.backup import Backup

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Back up and restore a store.")

Place = Annotated[Path, typer.Argument(metavar="BACKUP", help="A backup, or a directory of backups, for the newest.")]


class Persistence(Enum):
    """How a store keeps its data."""

    APPEND_ONLY = "append-only"
    SNAPSHOT = "snapshot"


@app.command()
@asynchronous
async def create(
    session: Session,
    target: Annotated[
        Path,
        typer.Argument(metavar="BACKUPS", file_okay=False, help="Directory for backups; each gets a subdirectory."),
    ],
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Copy the append-only files of this directory, such as .tradewind."),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="URL", envvar="TRADEWIND_STORE_URL", help="Take a snapshot of the store at this URL."),
    ] = None,
    user: Annotated[
        str | None, typer.Option(metavar="USER", envvar="TRADEWIND_STORE_USER", help="User to log in to the store as.")
    ] = None,
    password: Annotated[
        str | None, typer.Option(metavar="TEXT", envvar="TRADEWIND_STORE_PASSWORD", help="Password of that user.")
    ] = None,
    store_ca: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", envvar="TRADEWIND_STORE_TLS_CA", help="PEM file of the CA of a store with TLS (rediss://)."
        ),
    ] = None,
    store_cert: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", envvar="TRADEWIND_STORE_TLS_CERT", help="PEM file of the client certificate for the store."
        ),
    ] = None,
    store_key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", envvar="TRADEWIND_STORE_TLS_KEY", help="PEM file of the client certificate's key."
        ),
    ] = None,
    keep: Annotated[int, typer.Option(min=0, help="How many of the newest backups to keep; 0 keeps all.")] = 0,
    output: Output = Format.TEXT,
) -> None:
    """Back up a store while everything keeps running."""
    from tradewind.server.redis.backup import BackupError, back_up_directory, back_up_store, remove_old
    from tradewind.server.redis.snapshot import SnapshotError
    from tradewind.tls import StoreTlsFiles

    # Python may set signal handlers in its main thread only.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    # What an environment says for all commands is no wish of this one.
    if data is not None and store not in (None, os.environ.get("TRADEWIND_STORE_URL")):
        raise fail("give either --data or --store: one command backs up one store", WRONG_INPUT)
    now = datetime.now(UTC)
    try:
        if data is not None:
            backup = back_up_directory(data, target, now)
        elif store is not None:
            tls = StoreTlsFiles.find(store_ca, store_cert, store_key, environment={})
            backup = await back_up_store(store, target, now, user=user, password=password, tls=tls)
        else:
            raise fail("nothing to back up: give a directory with --data, or a store with --store", WRONG_INPUT)
        removed = remove_old(target, keep, backup)
    except (BackupError, SnapshotError, OSError) as error:
        raise fail(text_of(error)) from None
    text = f"{backup.path}: {backup.kind}, {backup.bytes} bytes; removed {counted(len(removed), 'old backup')}"
    session.screen.result(output, {**_record(backup), "removed": [str(path) for path in removed]}, text)


@app.command("list")
@blocking
def list_(
    session: Session,
    target: Annotated[Path, typer.Argument(metavar="BACKUPS", help="Directory of backups.")],
    output: Output = Format.TEXT,
) -> None:
    """List backups, the oldest first; what is broken is named on stderr."""
    from tradewind.server.redis.backup import broken_backups, list_backups

    if not target.is_dir():
        raise fail(f"no directory {target}: give one that `tradewind backup create` has written to", WRONG_INPUT)
    backups = list_backups(target)
    session.screen.notes(broken_backups(target))
    rows = [(str(each.path), each.kind, session.screen.when(each.taken_at), str(each.bytes)) for each in backups]
    session.screen.results(output, [_record(each) for each in backups], ["BACKUP", "KIND", "TAKEN AT", "BYTES"], rows)


def _record(backup: "Backup") -> dict[str, str | int]:
    return {"path": str(backup.path), "kind": backup.kind, "taken_at": iso(backup.taken_at), "bytes": backup.bytes}


@app.command()
@asynchronous
async def verify(session: Session, backup: Place, output: Output = Format.TEXT) -> None:
    """Check that a backup is intact, and that a store can load it.

    Exits with 1 if another backup there is broken, too.
    """
    from tradewind.server.redis.backup import BackupError, NoBackup, broken_backups, find_backup
    from tradewind.server.redis.embedded import EmbeddedStoreError
    from tradewind.server.redis.restoring import count_keys

    try:
        found, broken = find_backup(backup), broken_backups(backup)
        keys = await count_keys(found)
    except NoBackup as error:
        raise fail(str(error), WRONG_INPUT) from None
    except (BackupError, EmbeddedStoreError, OSError) as error:
        raise fail(text_of(error)) from None
    session.screen.result(
        output, {"path": str(found.path), "keys": keys}, f"{found.path} is intact: a store loads {keys} keys from it"
    )
    if broken:
        raise fail("\n".join(broken))


@app.command()
@blocking
def restore(
    session: Session,
    backup: Place,
    data: Annotated[
        Path,
        typer.Argument(metavar="DATA", file_okay=False, help="Data directory of the store, which must be stopped."),
    ],
    replace: Annotated[bool, typer.Option("--replace", help="Move existing data aside, into a subdirectory.")] = False,
    persistence: Annotated[
        Persistence, typer.Option(help="How the store persists its data.")
    ] = Persistence.APPEND_ONLY,
    output: Output = Format.TEXT,
) -> None:
    """Restore a backup as the data of a stopped store.

    Then start the store and the services, and run: tradewind doctor --mend
    """
    from tradewind.server.redis import restoring
    from tradewind.server.redis.backup import BackupError, NoBackup, broken_backups, find_backup

    try:
        found = find_backup(backup)
        session.screen.notes(broken_backups(backup))
        aside = restoring.restore(found, data, replace=replace, persistence=persistence.value)
    except NoBackup as error:
        raise fail(str(error), WRONG_INPUT) from None
    except (BackupError, OSError) as error:
        raise fail(text_of(error)) from None
    if output is Format.JSON:
        session.screen.json({"path": str(found.path), "data": str(data), "aside": str(aside) if aside else None})
        return
    session.screen.line(f"restored {found.path} to {data}" + (f"; the previous data is in {aside}" if aside else ""))
    session.screen.line("start the store and the services, then run: tradewind doctor --mend")
