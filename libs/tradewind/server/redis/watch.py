"""Metrics of the store itself, from its INFO."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import structlog
from prometheus_client import Gauge
from redis import asyncio as aioredis
from redis.exceptions import NoPermissionError

from tradewind.server.metrics import REGISTRY
from tradewind.server.redis.acl import AclUser
from tradewind.server.redis.checks import ping, refuses_user
from tradewind.server.redis.client import REDIS_ERRORS, connect
from tradewind.tls import TlsFiles

METRICS = AclUser("metrics", (), commands="-@all +info +ping +cluster|slots +command")
"""The store user that may ask the store about itself, and touch nothing."""

_NODE = ["node"]
UP = Gauge("tradewind_store_up", "1 while the store answers, 0 while it does not.", registry=REGISTRY)
MEMORY_USED = Gauge("tradewind_store_memory_used_bytes", "Memory in use by the store.", _NODE, registry=REGISTRY)
MEMORY_MAX = Gauge(
    "tradewind_store_memory_max_bytes",
    "Memory that the store may use: maxmemory, or that of its machine when there is no such limit.",
    _NODE,
    registry=REGISTRY,
)
CONNECTIONS = Gauge("tradewind_store_connections", "Connections of clients to the store.", _NODE, registry=REGISTRY)
CONNECTIONS_MAX = Gauge(
    "tradewind_store_connections_max", "Most connections that the store accepts (maxclients).", _NODE, registry=REGISTRY
)
KEYSPACE_HITS = Gauge("tradewind_store_keyspace_hits", "Lookups of keys that existed.", _NODE, registry=REGISTRY)
KEYSPACE_MISSES = Gauge(
    "tradewind_store_keyspace_misses", "Lookups of keys that did not exist.", _NODE, registry=REGISTRY
)

_OF_NODES = (MEMORY_USED, MEMORY_MAX, CONNECTIONS, CONNECTIONS_MAX, KEYSPACE_HITS, KEYSPACE_MISSES)

_HINT = "set TRADEWIND_METRICS_STORE_USER and TRADEWIND_METRICS_STORE_PASSWORD to a user that may call INFO"
_SECTIONS = ("memory", "clients", "stats")
_log = structlog.get_logger(__name__)


class StoreWatch:
    """Asks the store about itself every `every_s` seconds, as a user with that right."""

    def __init__(
        self, url: str, user: str | None, password: str | None, every_s: float, tls: TlsFiles | None = None
    ) -> None:
        self._client = connect(url, user=user, password=password, max_connections=4, tls=tls)
        self._every_s = every_s
        self._nodes: set[str] = set()
        """The nodes that were read last."""

    async def run(self) -> None:
        """Run until cancelled; if the store refuses the user, or INFO to it, report only that the store answers."""
        read: Callable[[], Awaitable[Any]] = self._read_all
        warned = False
        try:
            while True:
                try:
                    await read()
                    UP.set(1)
                except (*REDIS_ERRORS, OSError) as error:
                    denied = isinstance(error, NoPermissionError)
                    refused = denied or refuses_user(error)
                    UP.set(refused)
                    if denied:
                        read = partial(ping, self._client)
                    if refused and not warned:
                        warned = True
                        _log.warning("store_info_denied", error=error, hint=_HINT)
                    elif not refused:
                        _log.debug("store_check_failed", error=error)
                await asyncio.sleep(self._every_s)
        finally:
            await self._client.end()

    async def _read_all(self) -> None:
        client: Any = self._client
        if isinstance(client, aioredis.RedisCluster):
            _ = await client.initialize()
            found = {node.name: await _info(client, target_nodes=node) for node in client.get_primaries()}
        else:
            found = {"store": await _info(client)}
        for node, info in found.items():
            _set_gauges(node, info)
        for left in self._nodes - found.keys():
            for gauge in _OF_NODES:
                gauge.remove(left)
        self._nodes = set(found)


async def _info(client: Any, **options: Any) -> dict[str, Any]:
    info: dict[str, Any] = {}
    for section in _SECTIONS:
        info |= await client.info(section, **options)
    return info


def _set_gauges(node: str, info: Mapping[str, Any]) -> None:
    MEMORY_USED.labels(node).set(info["used_memory"])
    MEMORY_MAX.labels(node).set(info["maxmemory"] or info["total_system_memory"])
    CONNECTIONS.labels(node).set(info["connected_clients"])
    CONNECTIONS_MAX.labels(node).set(info["maxclients"])
    KEYSPACE_HITS.labels(node).set(info["keyspace_hits"])
    KEYSPACE_MISSES.labels(node).set(info["keyspace_misses"])
