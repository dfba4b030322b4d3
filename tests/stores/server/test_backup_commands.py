"""The commands for backups: what they print, and the codes that they exit with."""

import asyncio
import json
import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.full_disk import fullest_file
from tests.stores.server.conftest import BACKED_UP_AT
from tradewind.cli.app import app
from tradewind.server.redis import backup as backups
from tradewind.server.redis.backup import BackupError
from tradewind.server.redis.embedded import EmbeddedStore


def test_backup_dated_in_the_future_prevents_removal_of_old_ones(copied: backups.Backup, tmp_path: Path) -> None:
    target, data = tmp_path / "backups", tmp_path / "data"
    ahead = backups.back_up_directory(data, target, BACKED_UP_AT + timedelta(days=36_500))
    result = CliRunner().invoke(app, ["backup", "create", str(target), "--data", str(data), "--keep", "1"])
    assert result.exit_code == 1
    assert f"{ahead.path} has a later time, so no old backup was removed" in result.output.replace("\n", " ")
    assert len(backups.list_backups(target)) == 3


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": []}', '{"files": {"a": {"bytes": "many", "sha256": ""}}}'])
def test_broken_backup_is_skipped_and_named(copied: backups.Backup, tmp_path: Path, text: str) -> None:
    target, data = tmp_path / "backups", tmp_path / "data"
    broken = target / "20990101T000000.000000Z"
    broken.mkdir()
    (broken / "backup.json").write_text(text)
    message = f"{broken} is not a backup, because its backup.json is broken: "

    def run(*arguments: str) -> tuple[str, str]:
        result = CliRunner().invoke(app, ["backup", *arguments])
        assert result.exit_code == 0, result.output
        return result.stdout, result.stderr

    assert backups.find_backup(target) == copied
    assert run("create", str(target), "--data", str(data), "--keep", "1")[0].endswith("; removed 1 old backup\n")
    (taken,) = backups.list_backups(target)
    listed, notes = run("list", str(target))
    assert str(taken.path) in listed
    assert str(broken) not in listed
    assert notes.startswith(f"note: {message}")
    restored, notes = run("restore", str(target), str(tmp_path / "new"))
    assert restored.startswith(f"restored {taken.path} to ")
    assert notes.startswith(f"note: {message}")
    with pytest.raises(BackupError, match=re.escape(message)):
        backups.find_backup(broken)
    shutil.rmtree(taken.path)
    with pytest.raises(BackupError, match=rf"^no backup in .*\n{re.escape(message)}"):
        backups.find_backup(target)


def test_create_takes_data_or_store_but_not_both(
    copied: backups.Backup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["backup", "create", str(tmp_path / "more"), "--data", str(tmp_path / "data")]

    both = CliRunner().invoke(app, [*words, "--store", "redis://localhost:1"])
    monkeypatch.setenv("TRADEWIND_STORE_URL", "redis://localhost:1")
    beside_setting = CliRunner().invoke(app, words)

    assert (both.exit_code, both.stderr) == (
        2,
        "error: give either --data or --store: one command backs up one store\n",
    )
    assert (beside_setting.exit_code, len(backups.list_backups(tmp_path / "more"))) == (0, 1)


def test_create_says_what_it_removed(copied: backups.Backup, tmp_path: Path) -> None:
    words = ["backup", "create", str(tmp_path / "backups"), "--data", str(tmp_path / "data"), "-o", "json"]

    kept, replaced = (json.loads(CliRunner().invoke(app, [*words, *more]).stdout) for more in ([], ["--keep", "1"]))

    assert kept["removed"] == []
    assert replaced["removed"] == [str(copied.path), kept["path"]]


async def test_verify_fails_when_another_backup_is_broken(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "store")
    await store.start()
    taken = backups.back_up_directory(tmp_path / "store", tmp_path / "backups", datetime.now(UTC))
    await store.stop()
    broken = tmp_path / "backups" / "20990101T000000.000000Z"
    broken.mkdir()
    (broken / "backup.json").touch()

    verified = await asyncio.to_thread(CliRunner().invoke, app, ["backup", "verify", str(tmp_path / "backups")])

    assert verified.exit_code == 1
    assert f"{taken.path} is intact" in verified.stdout
    assert f"error: {broken} is not a backup" in verified.stderr


def test_full_disk_is_named_instead_of_what_is_copied_to_it(copied: backups.Backup, tmp_path: Path) -> None:
    data, target, new = tmp_path / "data", tmp_path / "more", tmp_path / "new"
    with fullest_file(1):
        created = CliRunner().invoke(app, ["backup", "create", str(target), "--data", str(data)])
        restored = CliRunner().invoke(app, ["backup", "restore", str(copied.path), str(new)])

    for result, place in ((created, target), (restored, new)):
        assert result.exit_code == 1
        assert re.match(rf"error: {place}/.*: File too large\n$", result.stderr)


def test_what_is_no_directory_is_named(copied: backups.Backup, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    target, data, file = (str(tmp_path / name) for name in ("backups", "data", "file"))

    for words, code, said in (
        (["list", f"{target}s"], 2, f"error: no directory {target}s: give one that"),
        (["list", file], 2, f"error: no directory {file}: give one that"),
        (["create", file, "--data", data], 2, f"dir '{file}' is a file"),
        (["restore", target, file], 2, f"dir '{file}' is a file"),
        (["verify", f"{target}s"], 2, f"error: no backup in {target}s: give a directory that"),
        (["verify", data], 2, f"error: no backup in {data}: give a directory that"),
        (["restore", data, f"{data}/new"], 2, f"error: no backup in {data}: give a directory that"),
        (["create", f"{file}/new", "--data", data], 1, f"error: {file}/new: Not a directory\n"),
    ):
        result = CliRunner().invoke(app, ["backup", *words])
        assert (result.exit_code, said in result.stderr) == (code, True), result.stderr
