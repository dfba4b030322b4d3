"""A store that answers but accepts no writes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.ports import free_port
from tests.servers import RedisServer
from tests.waiting import until
from tradewind.server.redis.embedded import EmbeddedStore

REFUSALS = {
    "the store is out of memory and accepts no writes": (
        ("CONFIG", "SET", "maxmemory", "1"),
        ("CONFIG", "SET", "maxmemory", "0"),
    ),
    "the store has too few replicas and accepts no writes": (
        ("CONFIG", "SET", "min-replicas-to-write", "1"),
        ("CONFIG", "SET", "min-replicas-to-write", "0"),
    ),
    "the store is read-only and accepts no writes": (
        ("REPLICAOF", "127.0.0.1", str(free_port())),
        ("REPLICAOF", "NO", "ONE"),
    ),
}
"""The reasons that users are shown, and the commands that begin and end each state."""


@asynccontextmanager
async def refusing_writes(store: RedisServer, reason: str) -> AsyncIterator[None]:
    """Make every node refuse writes while the context lasts, for this reason."""
    begin, end = REFUSALS[reason]
    for node in store.nodes:
        await store.on_node(node, *begin)
    try:
        yield
    finally:
        for node in store.nodes:
            await store.on_node(node, *end)


@asynccontextmanager
async def failing_disk(store: RedisServer) -> AsyncIterator[None]:
    """Let every node fail to write a snapshot, and refuse writes while the context lasts."""
    in_the_way = [node.directory / "dump.rdb" for node in store.nodes]
    try:
        for node, directory in zip(store.nodes, in_the_way, strict=True):
            directory.mkdir()
            await store.on_node(node, "CONFIG", "SET", "save", "3600 1")
            await store.on_node(node, "BGSAVE")

            async def failed(node: EmbeddedStore = node) -> bool:
                known = await store.on_node(node, "INFO", "persistence")
                return bool(known["rdb_last_bgsave_status"] == "err")

            await until(failed, "the snapshot has failed")
        yield
    finally:
        for node, directory in zip(store.nodes, in_the_way, strict=True):
            await store.on_node(node, "CONFIG", "SET", "save", "")
            directory.rmdir()
