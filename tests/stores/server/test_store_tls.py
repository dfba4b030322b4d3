"""The way to a store over TLS: commands, scripts, messages, and what is said when it does not fit."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from tests.certificates import Authority
from tests.ports import free_port
from tests.servers import ACL_USERS, BINARIES, REDIS_REQUIRED, SYSTEM_REDIS, RedisServer, RedisServers
from tests.tls_proxy import TlsProxy
from tests.waiting import until
from tradewind.server.redis.client import Client, connect, require_reachable
from tradewind.server.redis.embedded import EmbeddedStore
from tradewind.server.redis.subscriber import Subscriber
from tradewind.tls import TlsError, TlsFiles

SCRIPT = "return redis.call('INCRBY', KEYS[1], ARGV[1])"
KEY = "trading_flow:{f0}:count"


@pytest.fixture
def embedded(redis_servers: RedisServers) -> RedisServer:
    return redis_servers.get("embedded")


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


async def works(url: str, tls: TlsFiles) -> None:
    """Use commands, pipelined scripts and messages over one address."""
    heard: list[bytes] = []
    subscriber = Subscriber(url, tls=tls)
    subscriber.start()
    try:
        async with connected(url, tls) as client:
            await subscriber.subscribe("trading_flow:{f0}:changes", lambda _channel, message: heard.append(message))
            sha = str(await client.script_load(SCRIPT))
            counts = await asyncio.gather(*(client.evalsha(sha, 1, KEY, 1) for _ in range(200)))
            assert sorted(counts) == list(range(1, 201))
            assert await client.set("trading_flow:{f0}:large", "x" * 1_000_000)
            assert len(await client.get("trading_flow:{f0}:large") or b"") == 1_000_000
            await client.publish("trading_flow:{f0}:changes", "news")
            await until(lambda: heard == [b"news"], "the message is heard")
    finally:
        await subscriber.stop()


async def test_scripts_commands_and_messages_go_over_tls(store: RedisServer, authority: Authority) -> None:
    node = store.nodes[0]
    async with TlsProxy(authority.issue("store"), node.port, require_client_cert=True) as proxy:
        await works(over_tls(node, proxy.port), authority.issue("scheduler"))


@pytest.mark.skipif(SYSTEM_REDIS is None and not REDIS_REQUIRED, reason="the embedded store is built without TLS")
async def test_a_redis_that_speaks_tls_itself(authority: Authority, tmp_path: Path) -> None:
    files, port = authority.issue("store"), free_port()
    # fmt: off
    options = [
        "--tls-port", str(port), "--tls-cert-file", str(files.cert), "--tls-key-file", str(files.key),
        "--tls-ca-cert-file", str(files.ca),
    ]
    # fmt: on
    own = EmbeddedStore(tmp_path / "store", acl_users=ACL_USERS, binary=BINARIES[-1], options=options)
    await own.start()
    try:
        await works(over_tls(own, port), authority.issue("scheduler"))
    finally:
        await own.stop()


async def test_what_does_not_fit_is_told(store: RedisServer, authority: Authority, tmp_path: Path) -> None:
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


async def test_rotated_certificates_are_taken_when_a_connection_is_opened(
    store: RedisServer, authority: Authority, tmp_path: Path
) -> None:
    """The CA itself changes: only who reads the files anew can connect."""
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
