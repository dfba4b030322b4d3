"""Files that only their owner can read."""

import os
from pathlib import Path

import pytest

from tradewind.server.private_file import write_private


def test_full_disk_error_names_the_file_and_keeps_its_contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "passwords.json"
    write_private(path, "before")

    def raise_disk_full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", raise_disk_full)
    with pytest.raises(OSError, match=rf"^cannot write {path}: No space left on device$"):
        write_private(path, "after")
    assert [each.name for each in tmp_path.iterdir()] == ["passwords.json"]
    assert path.read_text() == "before"
