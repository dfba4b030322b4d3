"""A store with a replica and a Sentinel that makes the replica the master when the master dies."""

import asyncio
import os
import shutil
import signal
from pathlib import Path

from redis.exceptions import RedisError

from tests.ports import free_port
from tests.servers import ACL_USERS
from tests.waiting import until
from tradewind.server.redis.client import connect
from tradewind.server.redis.embedded import ADMIN, EmbeddedStore, find_server

SERVICE = "tradewind"


class FailoverStore:
    """Looks like an EmbeddedStore to what connects to it."""

    def __init__(self, home: Path, down_after_s: float = 1.0) -> None:
        """The master counts as dead when it has not answered for `down_after_s`.

        A replica that lags ten times as far behind is never made the master.
        """
        self._home = home
        self._down_after_ms = round(down_after_s * 1000)
        self._master = EmbeddedStore(home / "master", acl_users=ACL_USERS)
        self._replica: EmbeddedStore | None = None
        self._sentinel: asyncio.subprocess.Process | None = None
        self._port = free_port()

    async def start(self) -> None:
        """Start all three; returns when the replica has what the master has, and the Sentinel knows of both."""
        await self._master.start()
        (self._home / "replica").mkdir()
        # They have one set of users.
        shutil.copy(self._master.directory / "passwords.json", self._home / "replica")
        password = self._master.password_of(ADMIN)
        # fmt: off
        self._replica = EmbeddedStore(self._home / "replica", acl_users=ACL_USERS, options=[
            "--replicaof", "127.0.0.1", str(self._master.port), "--masteruser", ADMIN, "--masterauth", password,
            "--repl-diskless-sync-delay", "0",
        ])
        # fmt: on
        await self._replica.start()
        config = self._home / "sentinel.conf"
        config.write_text(
            f"port {self._port}\nbind 127.0.0.1\ndir {self._home}\n"
            f"sentinel monitor {SERVICE} 127.0.0.1 {self._master.port} 1\n"
            f"sentinel auth-user {SERVICE} {ADMIN}\nsentinel auth-pass {SERVICE} {password}\n"
            f"sentinel down-after-milliseconds {SERVICE} {self._down_after_ms}\n"
            f"sentinel failover-timeout {SERVICE} 10000\n",
            encoding="utf-8",
        )
        with (self._home / "sentinel.log").open("wb") as log:
            self._sentinel = await asyncio.create_subprocess_exec(
                str(find_server()), str(config), "--sentinel", stdout=log, stderr=log
            )
        await until(self._ready, "the Sentinel knows master and replica", timeout=60)

    async def _ready(self) -> bool:
        assert self._replica is not None
        replica = connect(self._replica.url_for(ADMIN), max_connections=1)
        sentinel = connect(f"redis://127.0.0.1:{self._port}", max_connections=1)
        try:
            linked = (await replica.info("replication"))["master_link_status"] == "up"
            return linked and bool(await sentinel.execute_command("SENTINEL", "REPLICAS", SERVICE))
        except (RedisError, OSError):
            await asyncio.sleep(0.1)
            return False
        finally:
            await replica.end()
            await sentinel.end()

    def url_for(self, user: str) -> str:
        """Return a URL that asks the Sentinel where the master is."""
        return f"redis+sentinel://{user}:{self._master.password_of(user)}@127.0.0.1:{self._port}/{SERVICE}"

    async def cut_off_replica(self) -> None:
        """Pass on to the replica all that was written so far, and nothing of what is written from now on."""
        assert self._replica is not None
        master = connect(self._master.url_for(ADMIN), max_connections=1)
        replica = connect(self._replica.url_for(ADMIN), max_connections=1)
        try:
            await master.execute_command("SET", "last", "passed on")
            assert await master.execute_command("WAIT", 1, 60_000) == 1
            await replica.execute_command("CONFIG", "SET", "masterauth", "no longer")
            await master.execute_command("CLIENT", "KILL", "TYPE", "replica")

            async def cut() -> bool:
                return bool((await replica.info("replication"))["master_link_status"] == "down")

            await until(cut, "the replica hears nothing any more")
            await master.execute_command("SET", "last", "lost")
        finally:
            await master.end()
            await replica.end()

    async def last_write_is_lost(self) -> bool:
        """Whether what was written last before the master died is gone."""
        master = connect(self.url_for(ADMIN), max_connections=1)
        try:
            return bool(await master.execute_command("GET", "last") == b"passed on")
        finally:
            await master.end()

    async def kill_master(self) -> None:
        """Kill the master; the Sentinel finds out, and makes the replica the master."""
        assert self._master.pid is not None
        os.kill(self._master.pid, signal.SIGKILL)
        await self._master.stop()

    async def stop(self) -> None:
        """End all three."""
        if self._sentinel is not None:
            self._sentinel.terminate()
            await self._sentinel.wait()
        if self._replica is not None:
            await self._replica.stop()
        await self._master.stop()
