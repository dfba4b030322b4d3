"""Stores whose host lost its power: the end of the append-only file was never written."""

from pathlib import Path

import pytest

from tests.servers import BINARIES
from tradewind.server.redis.backup import APPEND_ONLY, MANIFEST
from tradewind.server.redis.client import connect
from tradewind.server.redis.embedded import EmbeddedStore, EmbeddedStoreError
from tradewind.server.redis.zero_tail import cut_zero_tail

KINDS = pytest.mark.parametrize("binary", BINARIES, ids=lambda binary: "system" if binary else "embedded")


async def write(store: EmbeddedStore, *keys: str) -> None:
    """Set keys to a value that itself ends in zero bytes."""
    client = connect(store.url_for(), max_connections=1)
    try:
        for key in keys:
            await client.set(key, b"\0" * 300)
    finally:
        await client.end()


async def keys_of(store: EmbeddedStore) -> list[bytes]:
    client = connect(store.url_for(), max_connections=1)
    try:
        return sorted(await client.execute_command("KEYS", "*"))
    finally:
        await client.end()


def append_only_file(store: EmbeddedStore) -> Path:
    (file,) = store.directory.glob("appendonlydir/*.incr.aof")
    return file


@KINDS
@pytest.mark.parametrize(("lost", "left"), [(0, [b"a", b"b"]), (2, [b"a"]), (100, [b"a"])])
@pytest.mark.parametrize("zeros", [1, 4096, 200_000])
async def test_store_starts_without_the_zeros(
    tmp_path: Path, binary: str | None, lost: int, left: list[bytes], zeros: int
) -> None:
    store = EmbeddedStore(tmp_path, binary=binary)
    await store.start()
    await write(store, "a", "b")
    await store.stop()
    file = append_only_file(store)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) - lost] + b"\0" * zeros)

    await store.start()
    try:
        assert await keys_of(store) == left
        await write(store, "c")
    finally:
        await store.stop()
    await store.start()
    try:
        assert await keys_of(store) == [*left, b"c"]
    finally:
        await store.stop()


@KINDS
async def test_other_damage_still_refuses_to_start(tmp_path: Path, binary: str | None) -> None:
    store = EmbeddedStore(tmp_path, binary=binary)
    await store.start()
    await write(store, "a")
    await store.stop()
    file = append_only_file(store)
    damaged = b"#damaged#" + file.read_bytes()
    file.write_bytes(damaged)
    with pytest.raises(EmbeddedStoreError, match=f"^{file} is damaged: restore a backup"):
        await store.start()
    assert file.read_bytes() == damaged


@pytest.mark.parametrize("more", ["", " startoffset 8", " startoffset 8 endoffset 12"], ids=["7", "8", "8-stopped"])
def test_zeros_of_the_newest_file_are_cut_whatever_else_its_manifest_says(tmp_path: Path, more: str) -> None:
    directory = tmp_path / APPEND_ONLY
    directory.mkdir()
    for name in ("older", "newest"):
        (directory / name).write_bytes(b"*0\r\n\0\0")
    (directory / MANIFEST).write_text(f"file older seq 1 type i\nfile newest seq 2 type i{more}\n")
    cut_zero_tail(tmp_path)
    assert [(directory / name).read_bytes() for name in ("older", "newest")] == [b"*0\r\n\0\0", b"*0\r\n"]
