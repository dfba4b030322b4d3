"""Real stores for tests: the embedded one, a cluster of three such masters, and the redis-server on PATH, if any."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import redis

from tests.ports import free_port
from tests.waiting import until
from tradewind.access.stores import keys as access_keys
from tradewind.node_task_manager.stores import keys as node_task_manager_keys
from tradewind.registry.stores import keys as registry_keys
from tradewind.scheduler.stores import keys as scheduler_keys
from tradewind.server.redis.acl import ADMIN
from tradewind.server.redis.client import Client, connect
from tradewind.server.redis.embedded import EmbeddedStore
from tradewind.server.redis.subscriber import Subscriber
from tradewind.server.redis.watch import METRICS
from tradewind.tls import TlsFiles
from tradewind.trigger.stores import keys as trigger_keys

SERVICES = (scheduler_keys.ACL, node_task_manager_keys.ACL, registry_keys.ACL, trigger_keys.ACL, access_keys.ACL)
ACL_USERS = (*SERVICES, METRICS)

SYSTEM_REDIS = shutil.which("redis-server")
REDIS_REQUIRED = os.environ.get("TRADEWIND_REQUIRE_REDIS") == "1"
BINARIES = [None, *([SYSTEM_REDIS or "redis-server"] if SYSTEM_REDIS or REDIS_REQUIRED else [])]
"""Servers for tests of single stores: the embedded one (None), and the one on PATH, which must exist if required."""

NEVER_HELD_BACK = ("--appendfsync", "no")
"""Options of a store that a test kills: each write reaches the file at once, so that none is lost.

With `everysec`, a write may be held back for up to two seconds while the disk is busy.
"""

_SLOTS = 16384
_MASTERS = 3

_connect = partial(connect, connect_timeout_s=30.0)
"""Waits for a store for as long as a machine may be busy with other things: tests connect thousands of times."""


class RedisServer:
    """A running store of one kind; clients log in as any service's ACL user or as admin (user None)."""

    def __init__(self, kind: str, nodes: list[EmbeddedStore]) -> None:
        self.kind = kind
        self.nodes = nodes
        self._clients: list[Client] = []
        # Made once, not by every test: they need no event loop, and each test has its own.
        self._admins: list[Any] = [redis.Redis.from_url(node.url_for(ADMIN)) for node in nodes]

    def __repr__(self) -> str:
        return f"RedisServer({self.kind})"

    def url(self, user: str | None = None) -> str:
        """Return the URL with the credentials of `user`."""
        urls = [node.url_for(user or ADMIN) for node in self.nodes]
        if self.kind != "cluster":
            return urls[0]
        login = urlsplit(urls[0]).netloc.rpartition("@")[0]
        return f"redis+cluster://{login}@" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def connect(self, user: str | None = None, **options: Any) -> Client:
        """Return a client that the fixture closes at the end of the test; `options` are those of `connect`."""
        client = _connect(self.url(user), **options)
        self._clients.append(client)
        return client

    async def close_clients(self) -> None:
        """Close every client that was handed out and is still open."""
        clients, self._clients = self._clients, []
        for client in clients:
            await client.end()

    def close(self) -> None:
        """Close the connections that `flush` and the like use."""
        for admin in self._admins:
            admin.close()

    async def flush(self) -> None:
        """Delete every key on every node."""
        for admin in self._admins:
            admin.flushall()

    async def keys(self) -> list[str]:
        """Return every key on every node, in order."""
        return sorted(key.decode() for admin in self._admins for key in admin.keys("*"))

    async def keys_without_ttl(self) -> list[str]:
        """Return the keys that have no TTL, in order."""
        lasting = []
        for admin in self._admins:
            keys = admin.keys("*")
            pipeline = admin.pipeline(transaction=False)
            for key in keys:
                pipeline.pttl(key)
            lasting += [key.decode() for key, ttl in zip(keys, pipeline.execute(), strict=True) if ttl == -1]
        return sorted(lasting)

    async def on_node(self, node: EmbeddedStore, *command: str) -> Any:
        """Run a command on one node as admin."""
        client = _connect(node.url_for(ADMIN), max_connections=1)
        try:
            return await client.execute_command(*command)
        finally:
            await client.end()


class RedisServers:
    """Starts each kind of store when it is first asked for, and stops them all at the end."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="tw-"))
        self._running: dict[str, RedisServer] = {}

    def get(self, kind: str) -> RedisServer:
        """Return the running store of this kind: `embedded`, `cluster` or `system`."""
        if kind not in self._running:
            self._running[kind] = _run(self._start(kind))
        return self._running[kind]

    def stop(self) -> None:
        """Stop the started stores and delete their files."""
        for server in self._running.values():
            server.close()
            for node in server.nodes:
                _run(node.stop())
        shutil.rmtree(self._directory, ignore_errors=True)

    async def _start(self, kind: str) -> RedisServer:
        if kind == "cluster":
            return RedisServer(kind, await _start_cluster(self._directory / kind))
        if kind == "system" and SYSTEM_REDIS is None:
            raise AssertionError("TRADEWIND_REQUIRE_REDIS=1, but there is no redis-server on PATH: install it")
        binary = SYSTEM_REDIS if kind == "system" else None
        store = EmbeddedStore(self._directory / kind, acl_users=ACL_USERS, binary=binary)
        await store.start()
        return RedisServer(kind, [store])


def redis_kinds() -> list[str]:
    """Return the kinds of store that tests can use here."""
    return ["embedded", "cluster", *(["system"] if SYSTEM_REDIS or REDIS_REQUIRED else [])]


async def assert_no_leaked_keys(server: RedisServer, allowed: Iterable[str] = ()) -> None:
    """Assert that every key has a TTL or matches one of the glob patterns `allowed` (braces are literal)."""
    patterns = tuple(allowed)
    leaked = [key for key in await server.keys_without_ttl() if not any(fnmatchcase(key, p) for p in patterns)]
    assert not leaked, f"keys without TTL that nobody owns: {leaked}"


def tls_options(files: TlsFiles, port: int) -> list[str]:
    """Return the options with which a server of BINARIES[-1] also listens on a port over TLS."""
    # fmt: off
    return [
        "--tls-port", str(port), "--tls-cert-file", str(files.cert), "--tls-key-file", str(files.key),
        "--tls-ca-cert-file", str(files.ca),
    ]
    # fmt: on


async def start_tls_cluster(directory: Path, files: TlsFiles) -> tuple[list[EmbeddedStore], str]:
    """Start a three-master cluster that speaks TLS, also between its nodes; return it and the admin's URL."""
    ports = [free_port() for _ in range(_MASTERS)]
    nodes = await _start_cluster(directory, files, ports)
    login = urlsplit(nodes[0].url_for(ADMIN)).netloc.rpartition("@")[0]
    return nodes, f"rediss+cluster://{login}@" + ",".join(f"127.0.0.1:{port}" for port in ports)


async def _start_cluster(
    directory: Path, tls: TlsFiles | None = None, tls_ports: Sequence[int] = ()
) -> list[EmbeddedStore]:
    nodes: list[EmbeddedStore] = []
    buses: list[int] = []
    for index in range(_MASTERS):
        home = directory / str(index)
        home.mkdir(parents=True)
        if nodes:
            # A cluster has one set of users, so every node must know the same passwords.
            shutil.copy(nodes[0].directory / "passwords.json", home)
        bus = free_port()
        # fmt: off
        options = [
            "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1", "--cluster-port", str(bus),
            # A node that a test stops, or that a busy machine delays, must not be given up or cut off from messages.
            "--cluster-node-timeout", "30000",
        ]
        # fmt: on
        if tls is not None:
            options += ["--tls-cluster", "yes", *tls_options(tls, tls_ports[index])]
        binary = BINARIES[-1] if tls is not None else None
        node = EmbeddedStore(home, acl_users=ACL_USERS, binary=binary, options=options)
        await node.start()
        nodes.append(node)
        buses.append(bus)
    admins = [_connect(node.url_for(ADMIN), max_connections=1) for node in nodes]
    try:
        share = -(-_SLOTS // _MASTERS)
        for index, admin in enumerate(admins):
            slots = range(index * share, min((index + 1) * share, _SLOTS))
            await admin.execute_command("CLUSTER", "ADDSLOTS", *slots)
            await admin.execute_command("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
        ports = tls_ports or [node.port for node in nodes]
        for port, bus in list(zip(ports, buses, strict=True))[1:]:
            await admins[0].execute_command("CLUSTER", "MEET", "127.0.0.1", port, bus)

        async def formed() -> bool:
            views = [(await admin.execute_command("CLUSTER", "INFO")).decode().split() for admin in admins]
            return all({"cluster_state:ok", f"cluster_known_nodes:{_MASTERS}"} <= set(view) for view in views)

        await until(formed, "the three masters know each other and serve all slots")
        await _wait_until_linked(nodes, admins)
    finally:
        for admin in admins:
            await admin.end()
    return nodes


async def _wait_until_linked(nodes: list[EmbeddedStore], admins: list[Client]) -> None:
    """Return once messages published on any node reach all nodes.

    Nodes that already know each other need not be linked for messages in both directions; until then messages are lost.
    """
    received: list[set[bytes]] = [set() for _ in nodes]
    subscribers = [Subscriber(node.url_for(ADMIN)) for node in nodes]
    try:
        for subscriber, origins in zip(subscribers, received, strict=True):
            subscriber.start()
            await subscriber.subscribe("linked", partial(_add_origin, origins))

        async def linked() -> bool:
            for origin, admin in enumerate(admins):
                await admin.publish("linked", str(origin))
            return all(len(origins) == len(nodes) for origins in received)

        await until(linked, "messages of every node reach all others")
        await _wait_until_stable(admins)
    finally:
        for subscriber in subscribers:
            await subscriber.stop()


async def _wait_until_stable(admins: list[Client]) -> None:
    """Return once all nodes are linked both ways and no link has changed for a second.

    After nodes have met, links are sometimes replaced, and messages on their way are lost.
    """
    before: list[set[tuple[bytes, ...]]] = []

    async def stable() -> bool:
        nonlocal before
        links = [await admin.execute_command("CLUSTER", "LINKS") for admin in admins]
        now = [{_link_name(link) for link in each} for each in links]
        complete = all(len(each) == 2 * (len(admins) - 1) for each in now)
        if complete and now == before:
            return True
        before = now
        await asyncio.sleep(1)
        return False

    await until(stable, "the links between the nodes are stable")


def _link_name(link: Any) -> tuple[bytes, ...]:
    facts = link if isinstance(link, dict) else dict(zip(link[::2], link[1::2], strict=True))
    return tuple(str(facts[name]).encode() for name in (b"direction", b"node", b"create-time"))


def _add_origin(origins: set[bytes], _channel: str, origin: bytes) -> None:
    origins.add(origin)


def _run(coroutine: Any) -> Any:
    # Not asyncio.run: that would discard pytest-asyncio's current loop.
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()
