"""Backups of a store during writes: complete, refused when damaged, and restored for each way of keeping data."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from tests.full_disk import fullest_file
from tests.servers import BINARIES
from tests.stores.server.conftest import BACKED_UP_AT
from tests.waiting import until
from tools.store_secrets import BACKUP
from tradewind.server.redis import backup as backups
from tradewind.server.redis.backup import BackupError
from tradewind.server.redis.client import Client, connect
from tradewind.server.redis.embedded import EmbeddedStore
from tradewind.server.redis.restoring import Persistence, restore
from tradewind.server.redis.snapshot import SnapshotError, fetch_snapshot


@pytest.fixture(params=BINARIES, ids=lambda binary: "system" if binary else "embedded")
def binary(request: pytest.FixtureRequest) -> str | None:
    """The server program: the embedded one, and the redis-server on PATH."""
    program: str | None = request.param
    return program


@contextlib.asynccontextmanager
async def running(directory: Path, binary: str | None, *options: str) -> AsyncIterator[tuple[EmbeddedStore, Client]]:
    """Run a store over a directory; yield it and its admin client."""
    store = EmbeddedStore(directory, binary=binary, options=options)
    await store.start()
    admin = connect(store.url_for())
    try:
        yield store, admin
    finally:
        await admin.end()
        await store.stop()


class Writer:
    """Writes pairs `a<n>` and `b<n>` as fast as it can, each in one transaction: both are there, or neither."""

    def __init__(self, admin: Client) -> None:
        self.written = 0
        self.stopped = False
        self._admin = admin

    async def run(self) -> None:
        while not self.stopped:
            pipeline = self._admin.pipeline(transaction=True)
            pipeline.execute_command("SET", f"a{self.written}", "x" * 100)
            pipeline.execute_command("SET", f"b{self.written}", "y" * 100)
            await pipeline.execute()
            self.written += 1


@pytest_asyncio.fixture
async def busy(tmp_path: Path, binary: str | None) -> AsyncIterator[tuple[EmbeddedStore, Client, Writer]]:
    """A store that is being written to all the time."""
    # With `everysec` the files may lag up to two seconds behind the answers; with `always` they never do.
    async with running(tmp_path / "store", binary, "--appendfsync", "always") as (store, admin):
        writer = Writer(admin)
        writing = asyncio.create_task(writer.run())
        await until(lambda: writer.written > 50, "there is something")
        yield store, admin, writer
        writer.stopped = True
        await writing


async def assert_all_pairs(admin: Client, at_least: int) -> None:
    """Assert that a restored store has exactly the pairs up to some number."""
    keys = {key.decode() for key in await admin.execute_command("KEYS", "*")}
    count = len(keys) // 2
    assert count >= at_least
    assert keys == {f"{letter}{number}" for letter in "ab" for number in range(count)}


@pytest.mark.parametrize("persistence", ["append-only", "snapshot"])
async def test_snapshot_taken_during_writes_is_restored(
    busy: tuple[EmbeddedStore, Client, Writer], tmp_path: Path, binary: str | None, persistence: Persistence
) -> None:
    store, admin, writer = busy
    await admin.execute_command("ACL", "SETUSER", "backup", "on", ">secret", *BACKUP.split())
    url, before = f"redis://127.0.0.1:{store.port}", writer.written
    taken = await backups.back_up_store(url, tmp_path / "backups", BACKED_UP_AT, user="backup", password="secret")
    await until(lambda: writer.written > before + 50, "it goes on")

    assert (taken.kind, taken.taken_at, set(taken.files)) == ("snapshot", BACKED_UP_AT, {"dump.rdb"})
    assert restore(taken, tmp_path / "other", persistence=persistence) is None
    options = () if persistence == "append-only" else ("--appendonly", "no")
    async with running(tmp_path / "other", binary, *options) as (_, restored):
        await assert_all_pairs(restored, before)


async def test_append_only_files_copied_during_writes_and_rewrites_are_restored(
    busy: tuple[EmbeddedStore, Client, Writer], tmp_path: Path, binary: str | None
) -> None:
    store, admin, writer = busy
    for number in range(3):
        before = writer.written
        await admin.execute_command("BGREWRITEAOF")
        taken = backups.back_up_directory(
            store.directory, tmp_path / "backups", BACKED_UP_AT + timedelta(seconds=number)
        )
        await until(lambda limit=before: writer.written > limit + 20, "it goes on")

        async def rewritten() -> bool:
            return not (await admin.info("persistence"))["aof_rewrite_in_progress"]

        await until(rewritten, "the files are rewritten")
        home = tmp_path / f"restored-{number}"
        restore(taken, home)
        async with running(home, binary) as (_, restored):
            await assert_all_pairs(restored, before)
    assert [each.taken_at.second for each in backups.list_backups(tmp_path / "backups")] == [0, 1, 2]


async def test_user_without_rights_to_back_up_gets_an_error(
    busy: tuple[EmbeddedStore, Client, Writer], tmp_path: Path
) -> None:
    store, admin, _ = busy
    url = f"redis://127.0.0.1:{store.port}"
    await admin.execute_command("ACL", "SETUSER", "reader", "on", ">secret", "+get", "+replconf", "~*")
    with pytest.raises(SnapshotError, match=r"refused: -NOPERM .*SYNC and REPLCONF"):
        await backups.back_up_store(url, tmp_path / "backups", BACKED_UP_AT, user="reader", password="secret")
    with pytest.raises(SnapshotError, match="refused AUTH: WRONGPASS"):
        await fetch_snapshot(url, tmp_path / "x", user="reader", password="wrong")
    assert list((tmp_path / "backups").iterdir()) == []


async def test_user_without_a_password_can_back_up(tmp_path: Path, binary: str | None) -> None:
    async with running(tmp_path / "store", binary) as (store, admin):
        await admin.execute_command("ACL", "SETUSER", "probe", "on", "nopass", *BACKUP.split())
        await fetch_snapshot(f"redis://probe@127.0.0.1:{store.port}", tmp_path / "snapshot")
        assert (tmp_path / "snapshot").stat().st_size > 0
        with pytest.raises(SnapshotError, match="refused AUTH: WRONGPASS"):
            await fetch_snapshot(f"redis://nobody@127.0.0.1:{store.port}", tmp_path / "x")


def test_files_superseded_by_a_rewrite_are_not_copied(copied: backups.Backup) -> None:
    assert set(copied.files) == {f"appendonlydir/{name}" for name in ("base", "more", backups.MANIFEST)}
    text = (copied.path / backups.APPEND_ONLY / backups.MANIFEST).read_text()
    assert text == "file base seq 1 type b\nfile more seq 2 type i startoffset 8\n"


def test_a_damaged_backup_is_not_restored(copied: backups.Backup, tmp_path: Path) -> None:
    base = copied.path / "appendonlydir" / "base"
    base.write_text("BASF")
    with pytest.raises(BackupError, match="has changed since the backup"):
        restore(copied, tmp_path / "new")
    base.unlink()
    with pytest.raises(BackupError, match="is missing"):
        restore(copied, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_restore_keeps_existing_data_and_sets_it_aside_when_replacing(copied: backups.Backup, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with pytest.raises(BackupError, match="holds data"):
        restore(copied, data)
    (data / backups.APPEND_ONLY / "more").write_text("NEWER")
    aside = restore(copied, data, replace=True)
    assert aside is not None
    assert (aside / backups.APPEND_ONLY / "more").read_text() == "NEWER"
    assert (data / backups.APPEND_ONLY / "more").read_text() == "MORE"


def test_remove_old_keeps_the_newest_backups(copied: backups.Backup, tmp_path: Path) -> None:
    target = tmp_path / "backups"
    later = [backups.back_up_directory(tmp_path / "data", target, BACKED_UP_AT + timedelta(days=day)) for day in (1, 2)]
    (target / "20990101T000000.000000Z.part").mkdir()
    assert [path.name for path in backups.remove_old(target, 2, later[-1])] == [copied.path.name]
    assert backups.list_backups(target) == later
    assert backups.find_backup(target) == later[-1]
    assert backups.remove_old(target, 0, later[-1]) == []


def test_settings_of_replaced_data_are_set_aside_with_them(copied: backups.Backup, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / backups.STACK).write_text("4 shards")
    aside = restore(copied, data, replace=True)
    assert aside is not None
    assert (aside / backups.STACK).read_text() == "4 shards"
    assert not (data / backups.STACK).exists()

    (data / backups.STACK).write_text("1 shard")
    taken = backups.back_up_directory(data, tmp_path / "backups", BACKED_UP_AT + timedelta(days=1))
    (data / backups.STACK).write_text("2 shards")
    aside = restore(taken, data, replace=True)
    assert aside is not None
    assert (aside / backups.STACK).read_text() == "2 shards"
    assert (data / backups.STACK).read_text() == "1 shard"


def test_unfinished_backup_is_removed_a_day_after_its_last_change(copied: backups.Backup, tmp_path: Path) -> None:
    abandoned, busy = (tmp_path / "backups" / f"2026112{day}T031700.000000Z.part" for day in (0, 1))
    for directory in (abandoned, busy):
        directory.mkdir()
        (directory / "dump.rdb").touch()
    hours_ago_25 = time.time() - 25 * 3600
    for path in (abandoned / "dump.rdb", abandoned, busy):
        os.utime(path, (hours_ago_25, hours_ago_25))

    assert backups.remove_old(tmp_path / "backups", 0, copied) == []

    assert not abandoned.exists()
    assert busy.exists()
    assert copied.path.exists()


def test_backup_that_is_removed_in_part_is_no_backup(
    copied: backups.Backup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "backups"
    taken = backups.back_up_directory(tmp_path / "data", target, BACKED_UP_AT + timedelta(days=1))

    def fail(*_: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "rmdir", fail)
    with pytest.raises(KeyboardInterrupt):
        backups.remove_old(target, 1, taken)
    assert not copied.path.exists()
    assert backups.list_backups(target) == [taken]
    assert [path.suffix for path in target.iterdir() if path != taken.path] == [".part"]


async def test_terminated_backup_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "backups"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        command = (sys.executable, "-m", "tradewind.cli", "backup", "create", str(target), "--store", url)
        process = await asyncio.create_subprocess_exec(*command)
        await until(lambda: any(target.glob("*.part")), "the backup has begun")
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 143
    assert list(target.iterdir()) == []


def test_backup_of_another_user_is_named(
    copied: backups.Backup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "backups"
    target.chmod(0o755)
    (target / "notes").mkdir()
    (target / "README").touch()
    copied.path.chmod(0)
    # What leads there is closed to others, too.
    monkeypatch.chdir(target)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(
            BackupError, match=rf"^no backup in .*\n{copied.path.name} cannot be read by this user: [^\n]*$"
        ):
            backups.find_backup(Path())
    finally:
        os.seteuid(user)
        copied.path.chmod(0o700)


def test_restore_that_fails_leaves_everything_as_it_was(copied: backups.Backup, tmp_path: Path) -> None:
    """As on a full disk: here, no file may have more bytes than the first one copied."""
    data = tmp_path / "data"
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    with (
        fullest_file(min(size for size, _ in copied.files.values())),
        pytest.raises(OSError, match=r"File too large: .*appendonly"),
    ):
        restore(copied, data, replace=True)
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before
    assert list(data.glob("re*-*")) == []


async def test_full_disk_is_not_taken_for_a_store_that_fails(tmp_path: Path) -> None:
    async with running(tmp_path / "store", None) as (store, _):
        with fullest_file(1), pytest.raises(SnapshotError, match=rf"^{tmp_path}/snapshot: File too large$"):
            await fetch_snapshot(store.url_for(), tmp_path / "snapshot")


def test_restored_data_are_on_disk_before_they_take_their_place(
    copied: backups.Backup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, synced = tmp_path / "new", list[tuple[str, bool]]()

    def fsync(number: int) -> None:
        synced.append((Path(f"/proc/self/fd/{number}").readlink().name, (data / backups.APPEND_ONLY).exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    restore(copied, data)

    *laid_out, last = synced
    assert {Path(name).name for name in copied.files} < {name for name, _ in laid_out}
    assert [placed for _, placed in laid_out] == [False] * len(laid_out)
    assert last == ("new", True)


async def test_restore_refuses_a_directory_in_use(copied: backups.Backup, tmp_path: Path) -> None:
    async with running(tmp_path / "store", None):
        with pytest.raises(BackupError, match="a store is running in"):
            restore(copied, tmp_path / "store", replace=True)


def test_directory_without_a_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="no append-only files"):
        backups.back_up_directory(tmp_path, tmp_path / "backups", BACKED_UP_AT)
    with pytest.raises(BackupError, match="no backup in"):
        backups.find_backup(tmp_path)
