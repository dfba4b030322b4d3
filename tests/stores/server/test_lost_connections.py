"""A connection that the store closes between two commands is reported as lost, on every loop and every store."""

from typing import Any

import pytest
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError, RedisClusterException

from tests.servers import RedisServer
from tradewind.server.redis.client import connect
from tradewind.server.redis.connections import SentinelConnection, SentinelTlsConnection, TlsConnection, UnixConnection
from tradewind.server.redis.piped import PipedRedis


async def raise_closed(_connection: object, _command: object) -> None:
    """Fail as uvloop does."""
    raise RuntimeError("unable to perform operation on <TCPTransport closed=True reading=False>; the handler is closed")


async def test_write_to_a_closed_connection_raises_connection_error(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = redis_server.connect()
    await client.set("key", "1")
    with monkeypatch.context() as broken:
        broken.setattr(AbstractConnection, "_send_packed_command", raise_closed)
        with pytest.raises((ConnectionError, RedisClusterException), match="closed"):
            await client.get("key")
        pipeline = client.pipeline(transaction=False)
        pipeline.get("key")
        with pytest.raises((ConnectionError, RedisClusterException), match="closed"):
            await pipeline.execute()
    assert await client.get("key") == b"1"
    await client.delete("key")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("unix:///run/store.sock", UnixConnection),
        ("rediss://127.0.0.1:1", TlsConnection),
        ("redis+sentinel://127.0.0.1:1/main", SentinelConnection),
        ("rediss+sentinel://127.0.0.1:1/main", SentinelTlsConnection),
    ],
)
async def test_every_url_scheme_uses_its_connection_class(url: str, expected: type[Any]) -> None:
    client: Any = connect(url)
    assert isinstance(client, PipedRedis)
    assert client.connection_pool.connection_class is expected
    await client.end()
