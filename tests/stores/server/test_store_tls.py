"""Connections to a store over TLS: commands, scripts, messages, and the errors for mismatches."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from redis.exceptions import RedisError

from tests.certificates import Authority
from tests.ports import free_port
from tests.servers import (
    ACL_USERS,
    BINARIES,
    REDIS_REQUIRED,
    SYSTEM_REDIS,
    RedisServer,
    start_tls_cluster,
    tls_options,
)
from tests.system.replicas.failover import FailoverStore
from tests.tls_proxy import TlsProxy
from tests.unit.cli.shell import Ran, Shell
from tests.waiting import until
from tradewind.server.ending import end_tasks
from tradewind.server.metrics import REGISTRY
from tradewind.server.process import store_watch_of
from tradewind.server.redis.acl import ADMIN
from tradewind.server.redis.checks import require_reachable
from tradewind.server.redis.client import Client, connect, connect_single
from tradewind.server.redis.embedded import EmbeddedStore
from tradewind.server.redis.snapshot import SnapshotError, fetch_snapshot
from tradewind.server.redis.subscriber import Subscriber
from tradewind.server.redis.watch import METRICS, UP
from tradewind.server.settings import CommonSettings, load_settings
from tradewind.standalone.stack import Standalone
from tradewind.tls import TlsError, TlsFiles

SCRIPT = "return redis.call('INCRBY', KEYS[1], ARGV[1])"
KEY = "trading_flow:{f0}:count"


@pytest_asyncio.fixture
async def store(embedded: RedisServer) -> RedisServer:
    await embedded.flush()
    return embedded


def over_tls(store: EmbeddedStore, port: int, user: str = "scheduler") -> str:
    return store.url_for(user).replace("redis://", "rediss://").rpartition(":")[0] + f":{port}"


@asynccontextmanager
async def connected(url: str, tls: TlsFiles | None) -> AsyncIterator[Client]:
    client = connect(url, tls=tls)
    try:
        yield client
    finally:
        await client.end()


async def assert_store_works(url: str, tls: TlsFiles) -> None:
    """Use commands, pipelined scripts and messages over one address."""
    received: list[bytes] = []
    subscriber = Subscriber(url, tls=tls)
    subscriber.start()
    try:
        async with connected(url, tls) as client:
            await subscriber.subscribe("trading_flow:{f0}:changes", lambda _channel, message: received.append(message))
            counts = await asyncio.gather(*(client.call(KEY, "EVAL", SCRIPT, 1, KEY, 1) for _ in range(200)))
            assert sorted(counts) == list(range(1, 201))
            assert await client.set("trading_flow:{f0}:large", "x" * 1_000_000)
            assert len(await client.get("trading_flow:{f0}:large") or b"") == 1_000_000
            await client.publish("trading_flow:{f0}:changes", "news")
            await until(lambda: received == [b"news"], "the message is received")
    finally:
        await subscriber.stop()


async def test_scripts_commands_and_messages_work_over_tls(store: RedisServer, authority: Authority) -> None:
    node = store.nodes[0]
    async with TlsProxy(authority.issue("store"), node.port, require_client_cert=True) as proxy:
        await assert_store_works(over_tls(node, proxy.port), authority.issue("scheduler"))


needs_redis = pytest.mark.skipif(
    SYSTEM_REDIS is None and not REDIS_REQUIRED, reason="the embedded store is built without TLS"
)


@needs_redis
async def test_redis_with_its_own_tls_works(authority: Authority, tmp_path: Path) -> None:
    files, port = authority.issue("store"), free_port()
    own = EmbeddedStore(tmp_path / "store", acl_users=ACL_USERS, binary=BINARIES[-1], options=tls_options(files, port))
    await own.start()
    try:
        await assert_store_works(over_tls(own, port), authority.issue("scheduler"))
    finally:
        await own.stop()


@needs_redis
async def test_cluster_works_over_tls(authority: Authority, tmp_path: Path) -> None:
    """Its nodes speak TLS to each other as well, and redirections lead to ports with TLS."""
    nodes, url = await start_tls_cluster(tmp_path / "cluster", authority.issue("store"))
    files = authority.issue("scheduler")
    try:
        await assert_store_works(url, files)
        keys = [f"trading_flow:{{f{number}}}:spread" for number in range(16)]
        async with connected(url, files) as client:
            runs = (client.call(key, "EVAL", SCRIPT, 1, key, 7) for key in keys)
            assert await asyncio.gather(*runs) == [7] * len(keys)
            for key in keys:
                assert await client.get(key) == b"7"
        counts = [await keys_on(node) for node in nodes]
        assert all(counts), "every master has some of it"
        async with connected(url, TlsFiles(authority.ca)) as client:
            with pytest.raises(ConnectionError, match="the store does not answer"):
                await require_reachable(client)
    finally:
        for node in nodes:
            await node.stop()


async def keys_on(node: EmbeddedStore) -> int:
    async with connected(node.url_for(ADMIN), None) as client:
        return int(await client.execute_command("DBSIZE"))


@needs_redis
async def test_failover_behind_a_sentinel_works_over_tls(authority: Authority, tmp_path: Path) -> None:
    """Both the Sentinel and the masters are reached over TLS."""
    store = FailoverStore(tmp_path, down_after_s=30, tls=authority.issue("store"))
    files = authority.issue("scheduler")
    await store.start()
    url = store.url_for("scheduler")
    received: list[bytes] = []
    channel = "trading_flow:{f0}:changes"
    subscriber = Subscriber(url, tls=files)
    subscriber.start()
    try:
        await assert_store_works(url, files)
        async with connected(url, files) as client:
            await subscriber.subscribe(channel, lambda _channel, message: received.append(message))
            await client.set(KEY, 1)
            await store.kill_master()
            await store.set_down_after(0.3)

            async def served() -> bool:
                try:
                    await client.set(KEY, 2)
                    return bool(await client.call(KEY, "EVAL", SCRIPT, 1, KEY, 0) == 2)
                except (RedisError, OSError):
                    await asyncio.sleep(0.05)
                    return False

            await until(served, "the replica is the master", timeout=60)

            async def message_arrives() -> bool:
                with suppress(RedisError, OSError):
                    await client.publish(channel, "news")
                await asyncio.sleep(0.05)
                return b"news" in received

            await until(message_arrives, "messages of the new master are received", timeout=60)
    finally:
        await subscriber.stop()
        await store.stop()


async def test_tls_mismatches_are_reported(store: RedisServer, authority: Authority, tmp_path: Path) -> None:
    node = store.nodes[0]
    async with TlsProxy(authority.issue("store"), node.port, require_client_cert=True) as proxy:
        url = over_tls(node, proxy.port)
        async with connected(url, TlsFiles(Authority(tmp_path, "other").ca)) as client:
            with pytest.raises(ConnectionError, match="TRADEWIND_STORE_TLS_CA"):
                await require_reachable(client)
        async with connected(url, TlsFiles(authority.ca)) as client:
            with pytest.raises(ConnectionError, match="the store does not answer"):
                await require_reachable(client)
        with pytest.raises(TlsError, match=r"cannot read absent\.pem"):
            connect(url, tls=TlsFiles("absent.pem"))


async def test_rotated_certificates_are_used_by_new_connections(
    store: RedisServer, authority: Authority, tmp_path: Path
) -> None:
    """The CA itself changes: only a client that reads the files anew can connect."""
    node = store.nodes[0]
    ours, theirs = authority.issue("scheduler"), authority.issue("store")
    async with (
        TlsProxy(theirs, node.port) as proxy,
        connected(over_tls(node, proxy.port), ours) as client,
    ):
        assert await client.set(KEY, 1)
        later = tmp_path / "later"
        later.mkdir()
        other = Authority(later)
        for name in ("scheduler", "store"):
            issued = other.issue(name)
            for file in (issued.cert, issued.key):
                assert file is not None
                Path(file).replace(tmp_path / Path(file).name)
        other.ca.replace(authority.ca)
        proxy.reload()
        assert await client.get(KEY) == b"1", "what is open goes on"
        proxy.cut()

        async def answers() -> bool:
            try:
                return await client.get(KEY) == b"1"
            except Exception:
                await asyncio.sleep(0.05)
                return False

        await until(answers, "the client is connected again")


async def test_subscriber_recovers_when_a_key_file_was_missing_during_rotation(
    store: RedisServer, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = 0

    def connect_counted(*args: Any, **options: Any) -> Any:
        nonlocal attempts
        attempts += 1
        return connect_single(*args, **options)

    monkeypatch.setattr("tradewind.server.redis.subscriber.connect_single", connect_counted)
    node, ours = store.nodes[0], authority.issue("scheduler")
    received: list[str] = []
    channel = "trading_flow:{f0}:changes"
    async with TlsProxy(authority.issue("store"), node.port, require_client_cert=True) as proxy:
        subscriber = Subscriber(over_tls(node, proxy.port), tls=ours)
        subscriber.start()
        try:
            await subscriber.subscribe(
                channel, lambda _, message: received.append(message.decode()), lambda: received.append("")
            )
            key = Path(str(ours.key))
            aside = key.rename(key.with_suffix(".aside"))
            before = attempts
            proxy.cut()
            await until(lambda: attempts > before + 1, "it goes on trying without a key")
            aside.rename(key)
            await until(lambda: received == [""], "the gap is reported")
            await store.connect("scheduler").publish(channel, "news")
            await until(lambda: received == ["", "news"], "the message is received")
        finally:
            await subscriber.stop()
            await store.close_clients()


def name_in_settings(monkeypatch: pytest.MonkeyPatch, files: TlsFiles) -> None:
    for name in ("ca", "cert", "key"):
        monkeypatch.setenv(f"TRADEWIND_STORE_TLS_{name.upper()}", str(getattr(files, name)))


async def test_service_watches_its_store_with_its_certificates(
    store: RedisServer, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_in_settings(monkeypatch, authority.issue("metrics"))
    node = store.nodes[0]
    async with TlsProxy(authority.issue("store"), node.port, require_client_cert=True) as proxy:
        url = over_tls(node, proxy.port, METRICS.name)
        UP.set(-1)
        watching = asyncio.create_task(store_watch_of(load_settings(CommonSettings, store_url=url)).run())
        try:
            await until(lambda: REGISTRY.get_sample_value("tradewind_store_up") == 1, "the store was asked")
        finally:
            await end_tasks([watching])


async def test_stack_watches_its_store_with_its_certificates(
    store: RedisServer, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_in_settings(monkeypatch, authority.issue("stack"))
    monkeypatch.setenv("TRADEWIND_METRICS_PORT", str(free_port()))
    node = store.nodes[0]
    UP.set(-1)
    async with (
        TlsProxy(authority.issue("store"), node.port, require_client_cert=True) as proxy,
        Standalone(data=tmp_path / "unused", port=0, store_url=over_tls(node, proxy.port, ADMIN)),
    ):
        await until(lambda: REGISTRY.get_sample_value("tradewind_store_up") == 1, "the store was asked")
    await store.flush()


async def test_snapshot_is_fetched_over_tls(store: RedisServer, authority: Authority, tmp_path: Path) -> None:
    node, files = store.nodes[0], authority.issue("backup")
    async with TlsProxy(authority.issue("store"), node.port, require_client_cert=True) as proxy:
        url = over_tls(node, proxy.port, ADMIN)

        async def create(*named: str, ends: int = 0) -> Ran:
            command = ("backup", "create", str(tmp_path / "kept"), "--store", url, *named)
            return await asyncio.to_thread(Shell(), *command, ends=ends)

        named = ("--store-ca", str(files.ca), "--store-cert", str(files.cert), "--store-key", str(files.key))
        assert ": snapshot, " in (await create(*named)).out
        assert "cannot read absent.pem" in (await create("--store-ca", "absent.pem", ends=1)).err
        with pytest.raises(SnapshotError, match="CERTIFICATE_VERIFY_FAILED"):
            await fetch_snapshot(url, tmp_path / "none")
