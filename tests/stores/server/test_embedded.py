"""The embedded store: its files, its lock, its users, and that it dies with its owner."""

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from redis.exceptions import AuthenticationError

from tests.full_disk import fullest_file
from tests.servers import BINARIES
from tests.waiting import until
from tradewind.server.redis import allocator as allocators
from tradewind.server.redis.acl import AclUser
from tradewind.server.redis.client import connect
from tradewind.server.redis.embedded import EmbeddedStore, EmbeddedStoreError, find_server

USER = AclUser("scheduler", ("trading_flow:{f*",), ("trading_flow:{f*",))
KEY = "trading_flow:{f1}:kept"

OWNER = """
import asyncio, sys, time
from tradewind.server.redis.embedded import EmbeddedStore

async def own():
    store = EmbeddedStore(sys.argv[1])
    await store.start()
    print(store.pid, flush=True)

asyncio.run(own())
time.sleep(600)
"""


async def set_and_get(store: EmbeddedStore, user: str, value: str | None) -> bytes | None:
    client = connect(store.url_for(user))
    try:
        if value is not None:
            await client.set(KEY, value)
        return await client.get(KEY)
    finally:
        await client.end()


async def test_data_survives_a_restart(tmp_path: Path) -> None:
    for value in ("first", None):
        store = EmbeddedStore(tmp_path / "data", acl_users=[USER])
        await store.start()
        assert store.pid is not None
        try:
            assert await set_and_get(store, "scheduler", value) == b"first"
        finally:
            await store.stop()
        assert store.pid is None


async def test_data_is_readable_by_its_owner_only_in_a_directory_that_everybody_may_read(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o755)
    store = EmbeddedStore(tmp_path / "data", acl_users=[USER])
    await store.start()
    try:
        await set_and_get(store, "scheduler", "secret")
    finally:
        await store.stop()
    kept = [each for each in (tmp_path / "data").rglob("*") if each.suffix != ".log"]
    assert any(each.suffix == ".aof" for each in kept)
    assert [each.name for each in kept if stat.S_IMODE(each.stat().st_mode) & 0o077] == []


async def test_start_waits_until_data_is_loaded_beyond_its_timeout(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "data")
    await store.start()
    client = connect(store.url_for())
    try:
        await client.execute_command("MSET", *(word for number in range(4000) for word in (f"k{number}", "")))
        await client.execute_command("BGREWRITEAOF")
        await until(lambda: list(tmp_path.glob("data/appendonlydir/*.2.base.rdb")), "the data are in the base")
    finally:
        await client.end()
        await store.stop()
    slowly = ("--key-load-delay", "500", "--loading-process-events-interval-bytes", "1024")
    store = EmbeddedStore(tmp_path / "data", options=slowly)
    await store.start(timeout_s=1)
    client = connect(store.url_for())
    try:
        assert (await client.info("persistence"))["loading"] == 0
        assert await client.execute_command("DBSIZE") == 4000
    finally:
        await client.end()
        await store.stop()


@pytest.mark.parametrize("binary", BINARIES, ids=lambda binary: "system" if binary else "embedded")
async def test_writes_of_scripts_survive_a_restart(tmp_path: Path, binary: str | None) -> None:
    """Redis 7.0 loads them as the user that is not logged in, and drops them if that user has no rights."""
    store = EmbeddedStore(tmp_path / "data", acl_users=[USER], binary=binary)
    await store.start()
    client = connect(store.url_for("scheduler"))
    script = "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('SET', KEYS[2], ARGV[1])"
    await client.eval(script, 2, KEY, f"{KEY}:other", "kept")
    await client.end()
    await store.stop()
    await store.start()
    try:
        assert await set_and_get(store, "scheduler", None) == b"kept"
        nobody = connect(f"redis://127.0.0.1:{store.port}")
        with pytest.raises(AuthenticationError):
            await nobody.get(KEY)
        await nobody.end()
    finally:
        await store.stop()


async def test_allocator_is_chosen_unless_the_environment_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The store itself overwrites its environment with its process title.
    found, wrapper = tmp_path / "found", tmp_path / "wrapper"
    printed = f'echo "$GLIBC_TUNABLES $LD_PRELOAD" > "{found}"'
    wrapper.write_text(f'#!/bin/sh\n{printed}\nexec "{find_server()}" "$@"\n')
    wrapper.chmod(0o700)
    for name in ("GLIBC_TUNABLES", "LD_PRELOAD"):
        monkeypatch.delenv(name, raising=False)
    for expected in (" ".join(allocators.allocator().values()), "glibc.malloc.tcache_count=9"):
        store = EmbeddedStore(tmp_path / "data", acl_users=[USER], binary=wrapper)
        await store.start()
        await store.stop()
        assert found.read_text().strip() == expected
        # Values that somebody has set are kept.
        monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=9")
        monkeypatch.setenv("LD_PRELOAD", "")


@pytest.mark.skipif(sys.platform != "linux", reason="preloading a library by LD_PRELOAD, and /proc, are of Linux")
@pytest.mark.parametrize(("library", "preloaded"), [("libBrokenLocale.so.1", True), ("libnothing.so.2", False)])
async def test_store_runs_with_the_allocator_preloaded_if_the_loader_finds_it(
    library: str, preloaded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A library that comes with glibc, and that no program uses, stands for jemalloc.
    monkeypatch.setattr(allocators, "JEMALLOC", library)
    monkeypatch.setattr(allocators, "has_jemalloc", allocators.has_jemalloc.__wrapped__)
    store = EmbeddedStore(tmp_path, acl_users=[USER])
    await store.start()
    try:
        assert (library in Path(f"/proc/{store.pid}/maps").read_text()) is preloaded
    finally:
        await store.stop()


async def test_only_local_users_with_a_password_are_admitted(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path, acl_users=[USER])
    await store.start()
    try:
        assert store.url_for("scheduler").split("@")[1] == f"127.0.0.1:{store.port}"
        nobody = connect(f"redis://127.0.0.1:{store.port}")
        with pytest.raises(AuthenticationError):
            await nobody.ping()
        await nobody.end()
        for name in ("passwords.json", "users.acl"):
            assert (tmp_path / name).stat().st_mode & 0o077 == 0
        passwords = json.loads((tmp_path / "passwords.json").read_text())
        assert passwords.keys() == {"admin", "scheduler"}
        assert not any(password in (tmp_path / "users.acl").read_text() for password in passwords.values())
    finally:
        await store.stop()


async def test_passwords_persist_when_users_are_added(tmp_path: Path) -> None:
    first = EmbeddedStore(tmp_path, acl_users=[USER])
    await first.start()
    await first.stop()
    second = EmbeddedStore(tmp_path, acl_users=[USER, AclUser("registry", ("trading_flow:{registry}*",))])
    await second.start()
    await second.stop()
    assert second.password_of("scheduler") == first.password_of("scheduler")
    assert second.password_of("registry") not in (first.password_of("scheduler"), first.password_of("admin"))


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b'{"admin": 1}', b'{"admin": "\xff"}'])
async def test_unreadable_passwords_are_reported(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "passwords.json").write_bytes(content)
    with pytest.raises(EmbeddedStoreError, match=r"passwords\.json does not hold passwords: remove it"):
        await EmbeddedStore(tmp_path).start()


@pytest.mark.parametrize(("largest", "file"), [(0, "lock"), (20, "passwords.json")])
async def test_passwords_survive_a_start_on_a_full_disk(tmp_path: Path, largest: int, file: str) -> None:
    store = EmbeddedStore(tmp_path, acl_users=[USER])
    await store.start()
    password = store.password_of("scheduler")
    await store.stop()
    with fullest_file(largest), pytest.raises(OSError, match=f"^cannot write {tmp_path / file}: File too large$"):
        await store.start()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    await store.start()
    await store.stop()
    assert store.password_of("scheduler") == password


async def test_store_serves_on_a_unix_socket(tmp_path: Path) -> None:
    # Under pytest's own directory the socket's path would be too long on some machines.
    with tempfile.TemporaryDirectory() as short:
        store = EmbeddedStore(tmp_path, unix_socket=Path(short) / "store.sock", acl_users=[USER])
        await store.start()
        try:
            assert store.url_for("scheduler").startswith("unix://scheduler:")
            assert await set_and_get(store, "scheduler", "x") == b"x"
        finally:
            await store.stop()


def test_too_long_socket_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedStoreError, match="longer than 107 bytes"):
        EmbeddedStore(tmp_path, unix_socket=tmp_path / ("x" * 108))


async def test_directory_in_use_is_refused_with_its_owner(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    await store.start()
    try:
        with pytest.raises(EmbeddedStoreError, match=rf"{tmp_path} is in use by process {os.getpid()}: stop that one"):
            await EmbeddedStore(tmp_path, lock_wait_s=0.1).start()
        with pytest.raises(EmbeddedStoreError, match="already running"):
            await store.start()
    finally:
        await store.stop()
        await store.stop()


async def test_port_in_use_is_reported_and_the_directory_released(tmp_path: Path) -> None:
    first = EmbeddedStore(tmp_path / "a")
    await first.start()
    try:
        second = EmbeddedStore(tmp_path / "b", port=first.port)
        with pytest.raises(EmbeddedStoreError, match=r"(?i)address already in use"):
            await second.start()
        # A store that failed to start has released its directory.
        second.port = 0
        await second.start()
        await second.stop()
    finally:
        await first.stop()


async def test_log_of_a_crash_survives_the_restart(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    await store.start()
    try:
        assert store.pid is not None
        os.kill(store.pid, signal.SIGSEGV)
        await until(lambda: store.pid is None, "the store has crashed")
        await store.stop()
        await store.start()
        assert "crashed by signal: 11" in (tmp_path / "store.log").read_text(errors="replace")
    finally:
        await store.stop()


async def test_store_that_may_open_too_few_files_says_how_to_allow_more(tmp_path: Path) -> None:
    program = tmp_path / "limited"
    program.write_text(f'#!/bin/sh\nulimit -n 24\nexec {find_server()} "$@"\n')
    program.chmod(0o700)
    with pytest.raises(EmbeddedStoreError, match=r"^too many open files: allow more of them, as in: ulimit -n 1024$"):
        await EmbeddedStore(tmp_path, binary=program).start()


async def test_store_whose_file_is_damaged_says_how_to_keep_what_stands_before_the_damage(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    await store.start()
    client = connect(store.url_for())
    for key in ("before", "after"):
        await client.set(key, "x" * 50)
    await client.end()
    await store.stop()
    (file,) = tmp_path.glob("appendonlydir/*.incr.aof")
    content = file.read_bytes()
    file.write_bytes(content.replace(b"after", b"\xff" * 9))
    with pytest.raises(EmbeddedStoreError, match=f"^{file} is damaged: restore a backup") as refused:
        await store.start()
    command = str(refused.value).partition(" run: ")[2]
    mended = await asyncio.create_subprocess_shell(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    await mended.communicate(b"y\n")
    assert mended.returncode == 0
    await store.start()
    try:
        client = connect(store.url_for())
        assert [await client.get(key) for key in ("before", "after")] == [b"x" * 50, None]
        await client.end()
    finally:
        await store.stop()


async def test_failed_start_shows_its_output_and_long_log_is_rotated(tmp_path: Path) -> None:
    log, before = tmp_path / "store.log", tmp_path / "store.log.before"
    log.write_text("old\n" * 500_000 + "Address already in use\n")
    program = tmp_path / "not-a-store"
    program.write_text("#!/bin/sh\necho I am a shell script\nexit 3\n")
    program.chmod(0o700)
    for attempts in (1, 2):
        with pytest.raises(EmbeddedStoreError, match=r"exited at once:\nI am a shell script$"):
            await EmbeddedStore(tmp_path, binary=program).start()
        assert log.read_text() == "I am a shell script\n" * attempts
    assert before.stat().st_size == 1 << 20
    assert before.read_text().endswith("old\nAddress already in use\n")


async def test_store_that_does_not_answer_in_time_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "sleeper"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o700)
    store = EmbeddedStore(tmp_path / "data", binary=program)
    with pytest.raises(EmbeddedStoreError, match="did not answer in time"):
        await store.start(timeout_s=0.3)
    assert store.pid is None


@pytest.mark.skipif(sys.platform != "linux", reason="what ties a process to its parent, PR_SET_PDEATHSIG, is of Linux")
async def test_store_ends_with_its_killed_owner_and_the_next_owner_takes_over(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    owner = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert owner.stdout is not None
    server = int(await owner.stdout.readline())
    os.kill(server, signal.SIGSTOP)
    try:
        owner.kill()
        await owner.wait()
        with pytest.raises(EmbeddedStoreError, match=rf"by the store of process {owner.pid}, which is gone: stop that"):
            await EmbeddedStore(tmp_path, lock_wait_s=0.1).start()
    finally:
        os.kill(server, signal.SIGCONT)
    store = EmbeddedStore(tmp_path)
    await store.start()
    await store.stop()
    # Both have written out what they had answered.
    assert (tmp_path / "store.log").read_text().count("Calling fsync() on the AOF file") == 2

    def gone() -> bool:
        try:
            return Path(f"/proc/{server}/stat").read_text().split()[2] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    await until(gone, "the first owner's server has ended")
