"""A store with a replica and a Sentinel that makes the replica the master when the master dies."""

import asyncio
import os
import shutil
import signal
from pathlib import Path

from redis.exceptions import RedisError

from tests.ports import free_port
from tests.servers import ACL_USERS, BINARIES, tls_options
from tests.waiting import until
from tradewind.server.redis.acl import ADMIN
from tradewind.server.redis.client import Client, connect
from tradewind.server.redis.embedded import EmbeddedStore, find_server
from tradewind.tls import TlsFiles

SERVICE = "tradewind"


class FailoverStore:
    """Looks like an EmbeddedStore to its clients."""

    def __init__(self, home: Path, down_after_s: float = 1.0, tls: TlsFiles | None = None) -> None:
        """Count the master as dead when it has not answered for `down_after_s`.

        A replica that lags ten times as far behind is never made the master. With `tls` all three speak TLS to clients
        and to each other.
        """
        self._home = home
        self._down_after_ms = round(down_after_s * 1000)
        self._tls = tls
        self._binary = BINARIES[-1] if tls is not None else None
        # The ports under which the others find each of them.
        self._master_port, self._replica_port = free_port(), free_port()
        self._master = self._store("master", self._master_port)
        self._replica: EmbeddedStore | None = None
        self._sentinel: asyncio.subprocess.Process | None = None
        self._port = free_port()

    def _store(self, name: str, port: int, *options: str) -> EmbeddedStore:
        if self._tls is None:
            return EmbeddedStore(self._home / name, port=port, acl_users=ACL_USERS, options=options)
        own = [*options, *tls_options(self._tls, port), "--tls-replication", "yes"]
        return EmbeddedStore(self._home / name, acl_users=ACL_USERS, binary=self._binary, options=own)

    async def start(self) -> None:
        """Start all three; return when the replica has the master's data and the Sentinel knows both."""
        await self._master.start()
        (self._home / "replica").mkdir()
        # Both have the same set of users.
        shutil.copy(self._master.directory / "passwords.json", self._home / "replica")
        password = self._master.password_of(ADMIN)
        # fmt: off
        self._replica = self._store(
            "replica", self._replica_port, "--replicaof", "127.0.0.1", str(self._master_port),
            "--masteruser", ADMIN, "--masterauth", password, "--repl-diskless-sync-delay", "0",
        )
        # fmt: on
        await self._replica.start()
        config = self._home / "sentinel.conf"
        config.write_text(
            f"{self._port_lines()}bind 127.0.0.1\ndir {self._home}\n"
            f"sentinel monitor {SERVICE} 127.0.0.1 {self._master_port} 1\n"
            f"sentinel auth-user {SERVICE} {ADMIN}\nsentinel auth-pass {SERVICE} {password}\n"
            f"sentinel down-after-milliseconds {SERVICE} {self._down_after_ms}\n"
            f"sentinel failover-timeout {SERVICE} 10000\n",
            encoding="utf-8",
        )
        with (self._home / "sentinel.log").open("wb") as log:
            self._sentinel = await asyncio.create_subprocess_exec(
                str(self._binary or find_server()), str(config), "--sentinel", stdout=log, stderr=log
            )
        await until(self._ready, "the Sentinel knows master and replica", timeout=60)

    def _port_lines(self) -> str:
        """Return the lines of the Sentinel's configuration for its port, and for the way it connects."""
        if self._tls is None:
            return f"port {self._port}\n"
        options = tls_options(self._tls, self._port)
        lines = [f"{name.removeprefix('--')} {value}" for name, value in zip(options[::2], options[1::2], strict=True)]
        return "\n".join(["port 0", "tls-replication yes", *lines, ""])

    async def _ready(self) -> bool:
        assert self._replica is not None
        replica = connect(self._replica.url_for(ADMIN), max_connections=1)
        sentinel = self._connect_sentinel()
        try:
            linked = (await replica.info("replication"))["master_link_status"] == "up"
            return linked and bool(await sentinel.execute_command("SENTINEL", "REPLICAS", SERVICE))
        except (RedisError, OSError):
            await asyncio.sleep(0.1)
            return False
        finally:
            await replica.end()
            await sentinel.end()

    def _connect_sentinel(self) -> Client:
        scheme = "redis" if self._tls is None else "rediss"
        return connect(f"{scheme}://127.0.0.1:{self._port}", max_connections=1, tls=self._tls)

    async def set_down_after(self, seconds: float) -> None:
        """Count a master as dead after this many seconds from now on; a busy one would be counted as dead too."""
        sentinel = self._connect_sentinel()
        try:
            await sentinel.execute_command("SENTINEL", "SET", SERVICE, "down-after-milliseconds", round(seconds * 1000))
        finally:
            await sentinel.end()

    def url_for(self, user: str) -> str:
        """Return a URL that asks the Sentinel where the master is."""
        scheme = "redis" if self._tls is None else "rediss"
        return f"{scheme}+sentinel://{user}:{self._master.password_of(user)}@127.0.0.1:{self._port}/{SERVICE}"

    async def cut_off_replica(self) -> None:
        """Pass everything written so far on to the replica, and nothing that is written from now on."""
        assert self._replica is not None
        master = connect(self._master.url_for(ADMIN), max_connections=1)
        replica = connect(self._replica.url_for(ADMIN), max_connections=1)
        try:
            await master.execute_command("SET", "last", "passed on")
            assert await master.execute_command("WAIT", 1, 60_000) == 1
            await replica.execute_command("CONFIG", "SET", "masterauth", "no longer")
            await master.execute_command("CLIENT", "KILL", "TYPE", "replica")

            async def disconnected() -> bool:
                return bool((await replica.info("replication"))["master_link_status"] == "down")

            await until(disconnected, "the replica is disconnected")
            await master.execute_command("SET", "last", "lost")
        finally:
            await master.end()
            await replica.end()

    async def last_write_is_lost(self) -> bool:
        """Tell whether the last write before the master died is gone."""
        master = connect(self.url_for(ADMIN), max_connections=1)
        try:
            return bool(await master.execute_command("GET", "last") == b"passed on")
        finally:
            await master.end()

    async def kill_master(self) -> None:
        """Kill the master; the Sentinel notices, and makes the replica the master."""
        assert self._master.pid is not None
        os.kill(self._master.pid, signal.SIGKILL)
        await self._master.stop()

    async def fail_over(self) -> None:
        """Have the Sentinel make the replica the master while the master is well; return when the Sentinel names it.

        The Sentinel cannot make a replica of the old master, which it otherwise does within ten seconds or so.
        """
        master = connect(self._master.url_for(ADMIN), max_connections=1)
        sentinel = self._connect_sentinel()
        try:
            await master.execute_command("ACL", "SETUSER", ADMIN, "-replicaof", "-slaveof")
            await sentinel.execute_command("SENTINEL", "FAILOVER", SERVICE)

            async def named() -> bool:
                _, port = await sentinel.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
                return int(port) == self._replica_port

            await until(named, "the Sentinel names the new master", timeout=60)
        finally:
            await master.end()
            await sentinel.end()

    async def is_new_master(self, client: Client) -> bool:
        """Tell whether commands of a client, of ADMIN, go to what was the replica."""
        _, port = await client.call("", "CONFIG", "GET", "port")
        return int(port) == self._replica_port

    async def stop(self) -> None:
        """End all three."""
        if self._sentinel is not None:
            self._sentinel.terminate()
            await self._sentinel.wait()
        if self._replica is not None:
            await self._replica.stop()
        await self._master.stop()
