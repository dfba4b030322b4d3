"""What a host that lost its power may have left at the end of the append-only file."""

import os
from pathlib import Path

import structlog

from tradewind.server.redis.backup import APPEND_ONLY, MANIFEST, listed_files

_CHUNK = 65536

_log = structlog.get_logger(__name__)


def cut_zero_tail(data: Path) -> None:
    """Cut zero bytes off the end of the newest append-only file in a data directory, and log how many there were.

    The file system may have made the file longer without having written into it, and the store would refuse to load it.
    No record ends in a zero byte. One that is cut off by this was not complete, and the store itself leaves it out.
    """
    file = _newest(data / APPEND_ONLY)
    if file is None or not file.exists():
        return
    size = file.stat().st_size
    with file.open("rb") as content:
        end = _end_of_data(content.fileno(), size)
    if end < size:
        os.truncate(file, end)
        _log.warning("zero_tail_cut", file=str(file), bytes=size - end, why="the host may have lost its power")


def _newest(directory: Path) -> Path | None:
    """Return the file to which the store appends, None when there is none."""
    manifest = directory / MANIFEST
    text = manifest.read_text(encoding="utf-8", errors="replace") if manifest.exists() else ""
    names = [each.name for each in listed_files(text) if each.kind == "i"]
    return directory / names[-1] if names else None


def _end_of_data(file: int, size: int) -> int:
    """Return the position after the last byte that is not zero."""
    end = size
    while end:
        begin = max(0, end - _CHUNK)
        kept = os.pread(file, end - begin, begin).rstrip(b"\0")
        if kept:
            return begin + len(kept)
        end = begin
    return 0
