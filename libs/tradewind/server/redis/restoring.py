"""Restores a backup in place of a store's data."""

import fcntl
import shutil
import tempfile
from pathlib import Path
from typing import Literal

from tradewind.server.redis.acl import ADMIN
from tradewind.server.redis.backup import (
    APPEND_ONLY,
    MANIFEST,
    SNAPSHOT,
    STACK,
    Backup,
    BackupError,
    check,
    sync,
    sync_one,
)
from tradewind.server.redis.client import connect
from tradewind.server.redis.embedded import EmbeddedStore

Persistence = Literal["append-only", "snapshot"]

_BASE = "appendonly.aof.1.base.rdb"


def restore(
    backup: Backup, data: Path, *, replace: bool = False, persistence: Persistence = "append-only"
) -> Path | None:
    """Put a checked backup in place of a stopped store's data; return where the old data are now, if any.

    With `persistence` "append-only", which is how Tradewind's stores run, a snapshot becomes the base of the
    append-only files: a store with `appendonly yes` reads only these, and would start empty over a bare `dump.rdb`.
    "snapshot" is for a store with `appendonly no`. Raises BackupError when there are data and `replace` is not given,
    or when a store uses the directory.
    """
    check(backup)
    if backup.kind == "append-only" and persistence == "snapshot":
        raise BackupError(f"{backup.path} holds append-only files: start the store with appendonly yes")
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    _require_unused(data)
    existing = [data / name for name in (APPEND_ONLY, SNAPSHOT) if (data / name).exists()]
    if existing and not replace:
        raise BackupError(f"{data} holds data: choose an empty directory, or ask to replace the data (--replace)")
    # A store would start over half of the files without a word, so nothing takes its place until all of them are there.
    with tempfile.TemporaryDirectory(prefix="restoring-", dir=data) as folder:
        _lay_out(backup, Path(folder), persistence)
        # A store that loses power would start over half of the files, too.
        sync(Path(folder))
        aside: Path | None = None
        if existing:
            aside = Path(tempfile.mkdtemp(prefix="replaced-", dir=data))
            for path in (*existing, data / STACK):
                if path.exists():
                    path.rename(aside / path.name)
        for path in Path(folder).iterdir():
            path.rename(data / path.name)
        sync_one(data)
    return aside


def _lay_out(backup: Backup, target: Path, persistence: Persistence) -> None:
    """Copy a backup's files into an empty directory, under the names by which a store reads them."""
    if persistence == "snapshot":
        shutil.copyfile(backup.path / SNAPSHOT, target / SNAPSHOT)
        return
    (target / APPEND_ONLY).mkdir(mode=0o700)
    if backup.kind == "append-only":
        for name in backup.files:
            shutil.copyfile(backup.path / name, target / name)
    else:
        shutil.copyfile(backup.path / SNAPSHOT, target / APPEND_ONLY / _BASE)
        (target / APPEND_ONLY / MANIFEST).write_text(f"file {_BASE} seq 1 type b\n", encoding="ascii")


async def count_keys(backup: Backup) -> int:
    """Restore a backup into a temporary directory, start a store over it, and return how many keys it has.

    Raises BackupError when it is incomplete, EmbeddedStoreError when a store does not load it.
    """
    with tempfile.TemporaryDirectory(prefix="tradewind-backup-") as folder:
        restore(backup, Path(folder))
        store = EmbeddedStore(folder)
        await store.start(timeout_s=600)
        client = connect(store.url_for(ADMIN), max_connections=1)
        try:
            return int(await client.execute_command("DBSIZE"))
        finally:
            await client.end()
            await store.stop()


def _require_unused(data: Path) -> None:
    lock = data / "lock"
    if not lock.exists():
        return
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BackupError(f"a store is running in {data}: stop it first") from None
