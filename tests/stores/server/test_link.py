"""The link of a service to its store, as readiness sees it."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from structlog.testing import capture_logs

from tests.ports import free_port
from tests.servers import RedisServer
from tests.waiting import until
from tradewind.registry.app import Registry
from tradewind.registry.settings import RegistrySettings
from tradewind.registry.stores.keys import Keys
from tradewind.server.bootstrap import Server
from tradewind.server.channels import open_channel
from tradewind.server.health import ReadOnly
from tradewind.server.redis.data_version import DataVersion
from tradewind.server.redis.link import RedisLink

SERVING = health_pb2.HealthCheckResponse.SERVING


@pytest_asyncio.fixture
async def link(redis_server: RedisServer) -> AsyncIterator[RedisLink]:
    """The link of a registry."""
    await redis_server.flush()
    settings = RegistrySettings(store_url=redis_server.url("registry"))
    link = RedisLink(settings, DataVersion(Keys(settings.key_prefix).data_version), subscribes=False)
    await link.open()
    yield link
    await link.close()


async def test_readiness_check_writes_nothing(link: RedisLink, redis_server: RedisServer) -> None:
    keys = await redis_server.keys()
    dirty = [await changes(redis_server, at) for at in range(len(redis_server.nodes))]
    assert await link.not_ready() is None
    assert await redis_server.keys() == keys
    assert [await changes(redis_server, at) for at in range(len(redis_server.nodes))] == dirty


async def test_store_without_its_data_is_reported_once(link: RedisLink, redis_server: RedisServer) -> None:
    """Nobody else would say that it is another one, or was emptied: it answers, and accepts everything."""
    with capture_logs() as logs:
        await link.not_ready()
        await redis_server.flush()
        assert [await link.not_ready() for _ in range(3)] == [None] * 3
    assert [(each["event"], each["key"]) for each in logs] == [
        ("store_emptied", "trading_flow:{registry}:data_version")
    ]


async def changes(server: RedisServer, at: int) -> int:
    """Return how many changes a node has not saved yet."""
    return int((await server.on_node(server.nodes[at], "INFO", "persistence"))["rdb_changes_since_last_save"])


async def test_lost_connection_puts_that_for_messages_in_doubt(redis_server: RedisServer) -> None:
    settings = RegistrySettings(store_url=redis_server.url("registry"))
    link = RedisLink(settings, DataVersion(Keys(settings.key_prefix).data_version))
    try:
        await link.open()
        await until(lambda: link.subscriber._pubsub is not None, "it is connected")
        link.client.losses()
        assert link.subscriber._doubted
    finally:
        await link.close()


@pytest.mark.parametrize("missing", ["function|load", "fcall"])
async def test_service_whose_user_may_not_load_or_run_functions_does_not_start(
    redis_server: RedisServer, missing: str
) -> None:
    """It would be ready, and refuse every call."""
    await redis_server.flush()
    url = redis_server.url("registry")
    await run_on_all_nodes(redis_server, "ACL", "SETUSER", "registry", f"-{missing}")
    settings = RegistrySettings(store_url=url)
    link = RedisLink(settings, DataVersion(Keys(settings.key_prefix).data_version), subscribes=False)
    try:
        with pytest.raises(
            ConnectionError, match=rf"'{re.escape(missing)}' command; give it \+fcall and \+function\|load"
        ):
            await link.open()
    finally:
        await run_on_all_nodes(redis_server, "ACL", "SETUSER", "registry", f"+{missing}")
        await link.close()


@pytest.mark.parametrize(
    ("rule", "undo", "expected"),
    [
        ("resetkeys %R~*", "resetkeys ~trading_flow:{registry}:*", "refuses its user what a service must do: "),
        ("resetpass >new", "resetpass >PASSWORD", "refuses the user: .*; check TRADEWIND_STORE_USER"),
    ],
    ids=["may only read", "has another password"],
)
async def test_store_that_refuses_its_user_is_not_said_to_be_silent(
    link: RedisLink, redis_server: RedisServer, rule: str, undo: str, expected: str
) -> None:
    await run_on_all_nodes(redis_server, "ACL", "SETUSER", "registry", *rule.split())
    # A connection that has logged in stays so.
    await run_on_all_nodes(redis_server, "CLIENT", "KILL", "USER", "registry")
    try:
        await until(link.not_ready, "its connections are gone")
        assert re.match(f"the store {expected}", await link.not_ready() or "")
    finally:
        undoing = undo.replace("PASSWORD", link.client.password).split()
        await run_on_all_nodes(redis_server, "ACL", "SETUSER", "registry", *undoing)


async def test_unreachable_cluster_is_not_ready() -> None:
    settings = RegistrySettings(store_url=f"redis+cluster://127.0.0.1:{free_port()}")
    link = RedisLink(settings, DataVersion(Keys(settings.key_prefix).data_version), subscribes=False)
    reason = await link.not_ready()
    assert reason is not None
    assert reason.startswith("the store does not answer: ")
    await link.close()


async def test_readiness_tolerates_two_failed_write_checks(link: RedisLink, redis_server: RedisServer) -> None:
    for _ in range(2):
        await run_on_all_nodes(redis_server, "CONFIG", "SET", "min-replicas-to-write", "1")
        try:
            found = [await link.not_ready() for _ in range(4)]
        finally:
            await run_on_all_nodes(redis_server, "CONFIG", "SET", "min-replicas-to-write", "0")
        assert found[:2] == [None, None]
        for reason in found[2:]:
            assert reason is not None
            assert reason.startswith("the store accepts no writes: ")
            assert "Not enough good replicas to write" in reason
        assert await link.not_ready() is None


async def test_store_that_a_script_keeps_busy_is_not_ready(link: RedisLink, redis_server: RedisServer) -> None:
    """It does not even answer reads."""
    await run_on_all_nodes(redis_server, "CONFIG", "SET", "busy-reply-threshold", "1")
    scripts = [
        asyncio.ensure_future(redis_server.on_node(node, "EVAL", "while true do end", "0"))
        for node in redis_server.nodes
    ]
    try:

        async def busy() -> bool:
            return await link.not_ready() is not None

        await until(busy, "the script has kept the store busy")
        reason = await link.not_ready()
        assert reason is not None
        assert not isinstance(reason, ReadOnly)
        assert "busy running a script" in reason
    finally:
        await run_on_all_nodes(redis_server, "SCRIPT", "KILL")
        await asyncio.gather(*scripts, return_exceptions=True)
        await run_on_all_nodes(redis_server, "CONFIG", "SET", "busy-reply-threshold", "5000")
    assert await link.not_ready() is None


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [
        (("REPLICAOF", "127.0.0.1", str(free_port())), ("REPLICAOF", "NO", "ONE"), "read only replica"),
        (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0"), "used memory > 'maxmemory'"),
    ],
    ids=["read only", "out of memory"],
)
async def test_readiness_stays_serving_while_store_accepts_no_writes(
    embedded: RedisServer, begin: tuple[str, ...], end: tuple[str, ...], expected: str
) -> None:
    """Unready, all replicas would go at once; the service's own health name, the metric and the log say so."""
    await embedded.flush()
    registry = Registry(RegistrySettings(store_url=embedded.url("registry")))
    server = Server([registry], drain_s=0, readiness_interval_s=0.02)
    await server.start()
    try:
        async with open_channel(server.address) as channel:
            stub: Any = HealthStub(channel)

            async def health(name: str) -> int:
                return int((await stub.Check(health_pb2.HealthCheckRequest(service=name))).status)

            async def writes() -> bool:
                return await health(registry.names[0]) == SERVING

            async def refuses() -> bool:
                return not await writes()

            assert await writes()
            with capture_logs() as logs:
                await run_on_all_nodes(embedded, *begin)
                try:
                    await until(refuses, "it sees that the store accepts no writes")
                    assert [await health(name) for name in ("liveness", "readiness", "")] == [SERVING] * 3
                finally:
                    await run_on_all_nodes(embedded, *end)
                await until(writes, "it sees that the store takes writes again")
            reported = [each["reasons"] for each in logs if each["event"] == "not_ready"]
            assert len(reported) == 1
            assert expected in reported[0][0]
    finally:
        await server.stop()


async def run_on_all_nodes(server: RedisServer, *command: str) -> None:
    """Run a command on every node."""
    for node in server.nodes:
        await server.on_node(node, *command)
