"""Connections to the store are kept alive and checked, and clients never repeat commands by themselves."""

import socket
from typing import Any

import pytest
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tests.servers import RedisServer, RedisServers
from tradewind.server.redis.client import connect, connect_single


@pytest.fixture
def server(redis_servers: RedisServers) -> RedisServer:
    """The embedded store."""
    return redis_servers.get("embedded")


async def kept(pool: Any) -> Any:
    """Return a connected connection of a pool, which gets it back at once."""
    connection = await pool.get_connection()
    await pool.release(connection)
    return connection


def is_kept_alive(connection: Any) -> bool:
    """Tell whether the kernel probes the peer of a silent connection."""
    held: socket.socket = connection._writer.get_extra_info("socket")
    return bool(held.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))


async def test_a_connection_is_kept_alive_and_checked_after_30_s_of_silence(server: RedisServer) -> None:
    for client in (connect(server.url()), connect_single(server.url())):
        held: Any = client
        connection = await kept(held.connection_pool)
        assert is_kept_alive(connection)
        assert connection.health_check_interval == 30
        await client.end()


async def test_no_command_is_repeated_by_the_client_itself(server: RedisServer) -> None:
    client: Any = connect(server.url())
    connection = await kept(client.connection_pool)
    assert connection.retry == Retry(NoBackoff(), 0)
    await client.end()
