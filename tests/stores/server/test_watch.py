"""Metrics of the store: what it reports about itself to a user who may only ask for that."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, Self

import pytest
from prometheus_client import Gauge
from redis.asyncio import RedisCluster
from redis.exceptions import NoPermissionError

from tests.no_writes import failing_disk
from tests.ports import free_port
from tests.servers import RedisServer
from tests.waiting import until
from tradewind.server.ending import end_tasks
from tradewind.server.metrics import REGISTRY
from tradewind.server.redis import watch
from tradewind.server.redis.client import connect
from tradewind.server.redis.watch import METRICS, StoreWatch

OF_NODES = (
    watch.MEMORY_USED,
    watch.MEMORY_MAX,
    watch.CONNECTIONS,
    watch.CONNECTIONS_MAX,
    watch.KEYSPACE_HITS,
    watch.KEYSPACE_MISSES,
)


@pytest.fixture(autouse=True)
def reset_gauges() -> None:
    """Begin without the values of other tests."""
    watch.UP.set(-1)
    for gauge in OF_NODES:
        gauge.clear()


@asynccontextmanager
async def watching(url: str, password: str | None = None) -> AsyncIterator[asyncio.Task[None]]:
    """Watch a store while the block lasts; `password` replaces that of the URL."""
    task = asyncio.create_task(StoreWatch(url, None, password, 0.05).run())
    try:
        yield task
    finally:
        await end_tasks([task])


def up() -> float | None:
    """Return the metric of the store as a whole."""
    return REGISTRY.get_sample_value("tradewind_store_up")


def nodes_of(gauge: Gauge) -> dict[str, float]:
    """Return a gauge's values by node."""
    return {sample.labels["node"]: sample.value for family in gauge.collect() for sample in family.samples}


async def test_each_master_reports_memory_and_connections(redis_server: RedisServer) -> None:
    async with watching(redis_server.url(METRICS.name)):
        await until(lambda: up() == 1, "the store was asked")
    used, most = nodes_of(watch.MEMORY_USED), nodes_of(watch.MEMORY_MAX)
    assert len(used) == len(redis_server.nodes)
    for gauge in OF_NODES:
        assert nodes_of(gauge).keys() == used.keys()
    for node in used:
        assert 0 < used[node] < most[node]
        assert 0 < nodes_of(watch.CONNECTIONS)[node] < nodes_of(watch.CONNECTIONS_MAX)[node]


async def test_node_that_is_no_master_any_more_is_reported_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an alert on what it reported last would never end."""
    masters = ["one", "two"]
    fields = ["used_memory", "maxmemory", "connected_clients", "maxclients", "keyspace_hits", "keyspace_misses"]

    class Cluster(RedisCluster):
        def __init__(self) -> None: ...

        async def initialize(self, *_args: Any, **_options: Any) -> Self:
            return self

        def get_primaries(self) -> list[Any]:
            return [SimpleNamespace(name=name) for name in masters]

        async def info(self, section: str | None = None, *_sections: str, **_options: Any) -> dict[str, Any]:
            return dict.fromkeys(fields, 1)

        async def end(self) -> None: ...

    monkeypatch.setattr(watch, "connect", lambda *_args, **_options: Cluster())
    async with watching("redis+cluster://one"):
        await until(lambda: nodes_of(watch.CONNECTIONS).keys() == {"one", "two"}, "both masters were asked")
        masters[0] = "three"
        await until(lambda: nodes_of(watch.CONNECTIONS).keys() == {"two", "three"}, "the new masters were asked")
    for gauge in OF_NODES:
        assert nodes_of(gauge).keys() == {"two", "three"}


async def test_metrics_user_may_only_measure(redis_server: RedisServer) -> None:
    client = connect(redis_server.nodes[0].url_for(METRICS.name))
    try:
        for command in (("GET", "trading_flow:{f1}:flow:a"), ("CONFIG", "GET", "*"), ("CLIENT", "LIST"), ("FLUSHALL",)):
            with pytest.raises(NoPermissionError):
                await client.execute_command(*command)
    finally:
        await client.end()


async def test_user_without_rights_to_measure_gets_a_hint_and_store_up_only(
    redis_server: RedisServer, capfd: pytest.CaptureFixture[str]
) -> None:
    async with watching(redis_server.url("scheduler")):
        for _ in range(2):
            await until(lambda: up() == 1, "the store was asked")
            watch.UP.set(-1)
    assert capfd.readouterr().err.count("TRADEWIND_METRICS_STORE_USER") == 1
    assert not nodes_of(watch.MEMORY_USED)


async def test_wrong_password_gets_a_hint_and_does_not_report_the_store_down(
    redis_server: RedisServer, capfd: pytest.CaptureFixture[str]
) -> None:
    async with watching(redis_server.url(METRICS.name), password="wrong"):
        for _ in range(2):
            await until(lambda: up() == 1, "the store was asked")
            watch.UP.set(-1)
    assert capfd.readouterr().err.count("TRADEWIND_METRICS_STORE_USER") == 1


async def test_store_whose_disk_fails_is_reported_up(redis_server: RedisServer) -> None:
    async with watching(redis_server.url("scheduler")):
        await until(lambda: up() == 1, "the store was asked")
        async with failing_disk(redis_server):
            for _ in range(2):
                watch.UP.set(-1)
                await until(lambda: up() != -1, "the store was asked again")
            assert up() == 1


async def test_unreachable_store_is_reported_down() -> None:
    async with watching(f"redis://127.0.0.1:{free_port()}") as task:
        await until(lambda: up() == 0, "the store is found to be away")
        assert not task.done()
