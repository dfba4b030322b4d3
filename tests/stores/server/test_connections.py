"""Connections to the store are kept alive and checked, and clients never repeat commands by themselves."""

import socket
from typing import Any

import pytest
import redis.utils
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tests.no_writes import failing_disk
from tests.servers import RedisServer
from tradewind.server.redis.checks import require_reachable
from tradewind.server.redis.client import connect, connect_single
from tradewind.server.redis.connections import DiskFails


async def pooled_connection(pool: Any) -> Any:
    """Return a connected connection of a pool, which gets it back at once."""
    connection = await pool.get_connection()
    await pool.release(connection)
    return connection


def is_kept_alive(connection: Any) -> bool:
    """Tell whether the kernel probes the peer of a silent connection."""
    held: socket.socket = connection._writer.get_extra_info("socket")
    return bool(held.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))


async def test_connection_has_keepalive_and_health_check_after_30_s(embedded: RedisServer) -> None:
    for client in (connect(embedded.url()), connect_single(embedded.url())):
        held: Any = client
        connection = await pooled_connection(held.connection_pool)
        assert is_kept_alive(connection)
        assert connection.health_check_interval == 30
        await client.end()


async def test_client_repeats_no_command_by_itself(embedded: RedisServer) -> None:
    client: Any = connect(embedded.url())
    connection = await pooled_connection(client.connection_pool)
    assert connection.retry == Retry(NoBackoff(), 0)
    await client.end()


async def test_connections_name_their_version_without_looking_it_up(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis.utils, "get_lib_version", lambda: pytest.fail("looked up"))
    await redis_server.connect().exists("a")
    # Redis 7.0 does not keep it.
    listed = await redis_server.on_node(redis_server.nodes[0], "CLIENT", "LIST")
    assert redis_server.kind == "system" or f"lib-ver={redis.__version__}" in listed.decode()


async def test_store_whose_disk_fails_answers_reads_and_checks(embedded: RedisServer) -> None:
    """It refuses PING, by which connections are checked."""
    client: Any = connect(embedded.url())
    await client.set("known", "1")
    async with failing_disk(embedded):
        with pytest.raises(DiskFails):
            await client.ping()
        await require_reachable(client)
        (await pooled_connection(client.connection_pool)).next_health_check = 0
        assert await client.get("known") == b"1"
    await client.end()
