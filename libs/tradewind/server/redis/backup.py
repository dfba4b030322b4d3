"""Backups of a store: taken while it runs, found again, and checked.

A backup is its own directory below the named one: its files, and `backup.json`, which records how it was taken and what
each file must be. It appears under its name only once it is complete.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from tradewind.server.redis.snapshot import fetch_snapshot
from tradewind.tls import TlsFiles

Kind = Literal["snapshot", "append-only"]

SNAPSHOT = "dump.rdb"
APPEND_ONLY = "appendonlydir"
MANIFEST = "appendonly.aof.manifest"
STACK = "stack.json"
_RECORD = "backup.json"
_UNFINISHED = ".part"
_ATTEMPTS = 20
_DAY_S = 24 * 3600


class BackupError(Exception):
    """A backup cannot be taken, is incomplete, or cannot be restored; the message says why and what to do."""


class NoBackup(BackupError):
    """There is no backup, not even a broken one, where one was named."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup on disk; `files` maps names to bytes and SHA-256."""

    path: Path
    kind: Kind
    taken_at: datetime
    files: dict[str, tuple[int, str]]

    @property
    def bytes(self) -> int:
        """The size of all its files."""
        return sum(size for size, _ in self.files.values())


class ListedFile(NamedTuple):
    """A file in a manifest, whose kind is "b" (base), "i" (what came after it) or "h" (obsolete).

    The line may say more than that: Redis 8 adds offsets.
    """

    name: str
    kind: str
    line: str


async def back_up_store(
    url: str,
    target: Path,
    now: datetime,
    *,
    user: str | None = None,
    password: str | None = None,
    tls: TlsFiles | None = None,
) -> Backup:
    """Take a snapshot of a running store into a new directory below `target`. Raises SnapshotError, BackupError."""
    with _new_backup(target, "snapshot", now) as directory:
        await fetch_snapshot(url, directory / SNAPSHOT, user=user, password=password, tls=tls)
    return read_backup(target / _directory_name(now))


def back_up_directory(data: Path, target: Path, now: datetime) -> Backup:
    """Copy the append-only files of a store's directory, which the store may write meanwhile, to one below `target`.

    The copy holds everything that the store's process has handed to its files by now: with `appendfsync everysec`, all
    but the last two seconds at worst. Raises BackupError.
    """
    source = data / APPEND_ONLY
    if not (source / MANIFEST).exists():
        raise BackupError(
            f"no append-only files in {data}: give the directory of a store that runs with appendonly yes"
        )
    with _new_backup(target, "append-only", now) as directory:
        for _ in range(_ATTEMPTS):
            if _copy_files(source, directory / APPEND_ONLY):
                break
        else:
            raise BackupError(f"the store in {data} keeps rewriting its files: try again when it is less busy")
        if (data / STACK).exists():
            shutil.copy2(data / STACK, directory / STACK)
    return read_backup(target / _directory_name(now))


def list_backups(target: Path) -> list[Backup]:
    """Return the complete backups below a directory, oldest first, without those that `broken_backups` returns."""
    return _read_backups(target)[0]


def broken_backups(target: Path) -> list[str]:
    """Return what is wrong with each backup below a directory whose `backup.json` cannot be read."""
    return _read_backups(target)[1]


def remove_old(target: Path, keep: int, taken: Backup) -> list[Path]:
    """Remove all but the newest `keep` backups below a directory; return the removed ones.

    What a killed process left unfinished goes as well, a day after its last change. Raises BackupError, and removes no
    backup, unless the backup just `taken` is the newest.
    """
    for path in target.glob(f"*{_UNFINISHED}"):
        with suppress(FileNotFoundError):  # Somebody else may finish or remove it meanwhile.
            if max(each.stat().st_mtime for each in (path, *path.rglob("*"))) < time.time() - _DAY_S:
                shutil.rmtree(path)
    found = list_backups(target) if keep > 0 else []
    if found and found[-1] != taken:
        raise BackupError(
            f"{taken.path} was taken, but {found[-1].path} has a later time, so no old backup was removed: check the "
            "clock of this machine, or move away the backups that are dated in the future"
        )
    old = [backup.path for backup in found[:-keep]]
    for path in old:
        # What is left when this is killed must not look like a backup, and is removed by a later call.
        shutil.rmtree(path.rename(path.with_name(f"{path.name}{_UNFINISHED}")))
    return old


def find_backup(path: Path) -> Backup:
    """Return the backup at a path, or the newest complete one below it.

    Raises NoBackup when there is none, BackupError when all are broken.
    """
    if (path / _RECORD).exists():
        return read_backup(path)
    found, broken = _read_backups(path)
    if not found:
        message = f"no backup in {path}: give a directory that `tradewind backup create` has written to"
        raise BackupError("\n".join([message, *broken])) if broken else NoBackup(message)
    return found[-1]


def read_backup(path: Path) -> Backup:
    """Return the backup that a `backup.json` describes. Raises BackupError."""
    try:
        record = json.loads((path / _RECORD).read_text(encoding="utf-8"))
        files = {name: (int(each["bytes"]), str(each["sha256"])) for name, each in record["files"].items()}
        return Backup(path, record["kind"], datetime.fromisoformat(record["taken_at"]), files)
    except PermissionError as error:
        raise BackupError(f"{path} cannot be read by this user: {error}") from error
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise BackupError(f"{path} is not a backup, because its {_RECORD} is broken: {error}") from error


def check(backup: Backup) -> None:
    """Compare each file with its state when the backup was taken. Raises BackupError for the first that differs."""
    for name, expected in backup.files.items():
        path = backup.path / name
        if not path.is_file():
            raise BackupError(f"{path} is missing: this backup cannot be used, choose another one")
        if _fingerprint(path) != expected:
            raise BackupError(f"{path} has changed since the backup: it cannot be used, choose another one")


def listed_files(manifest: str) -> list[ListedFile]:
    """Return the append-only files that the text of a manifest lists, in its order."""
    found: list[ListedFile] = []
    for line in manifest.splitlines():
        words = line.split()
        if words[:1] == ["file"]:
            facts = dict(zip(words[::2], words[1::2], strict=False))
            found.append(ListedFile(facts["file"], facts.get("type", ""), line))
    return found


def sync(directory: Path) -> None:
    """Return once everything below a directory, and all names there, outlast a failure of power. Raises OSError."""
    for path in (*directory.rglob("*"), directory):
        sync_one(path)


def sync_one(path: Path) -> None:
    """Return once a file, or the names in a directory, outlast a failure of power. Raises OSError."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _read_backups(target: Path) -> tuple[list[Backup], list[str]]:
    found, broken = list[Backup](), list[str]()
    for path in sorted(target.glob("*")):
        if path.suffix == _UNFINISHED:
            continue
        try:
            found.append(read_backup(path))
        except BackupError as error:
            # A backup is readable by its owner only: that others may not read it does not mean that there is none.
            if not isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
                broken.append(str(error))
    return found, broken


def _copy_files(source: Path, target: Path) -> bool:
    """Copy a manifest's files; return False, leaving nothing, when the store has begun new files in the meantime."""
    before = (source / MANIFEST).read_text(encoding="utf-8")
    # Files that a rewrite has made obsolete (type h) may go at any moment and are not needed.
    files = [each for each in listed_files(before) if each.kind != "h"]
    target.mkdir(mode=0o700)
    try:
        for each in files:
            shutil.copyfile(source / each.name, target / each.name)
    except FileNotFoundError:
        shutil.rmtree(target)
        return False
    if (source / MANIFEST).read_text(encoding="utf-8") != before:
        shutil.rmtree(target)
        return False
    (target / MANIFEST).write_text("".join(f"{each.line}\n" for each in files), encoding="utf-8")
    return True


@contextmanager
def _new_backup(target: Path, kind: Kind, now: datetime) -> Iterator[Path]:
    """Yield a directory that gets its `backup.json` and its final name at the end; an exception removes it."""
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    directory = target / f"{_directory_name(now)}{_UNFINISHED}"
    try:
        # Outside, a signal could come between this and what removes it.
        directory.mkdir(mode=0o700)
        yield directory
        _write_record(directory, kind, now)
        sync(directory)
        directory.rename(target / _directory_name(now))
        sync_one(target)
    except FileExistsError:
        # Another backup is making it.
        raise
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _write_record(directory: Path, kind: Kind, now: datetime) -> None:
    paths = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    fingerprints = {path.relative_to(directory).as_posix(): _fingerprint(path) for path in paths}
    record = {
        "kind": kind,
        "taken_at": now.isoformat(),
        "files": {name: {"bytes": size, "sha256": digest} for name, (size, digest) in fingerprints.items()},
    }
    (directory / _RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _fingerprint(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        return os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest()


def _directory_name(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
