"""A store that answers but accepts no writes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.ports import free_port
from tests.servers import RedisServer

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
