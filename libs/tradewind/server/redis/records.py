"""Reads records of which some may have been changed by hand so that they cannot be read."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from redis.exceptions import ResponseError

from tradewind.server.faults import Unreadable
from tradewind.server.redis.client import Client, Value


async def read_each(client: Client, keys: Sequence[str], verb: str, *more: Value) -> list[Any]:
    """Return the reply to a command about each key, Unreadable for a key of another type; raises as redis-py does."""
    return await read_all(client, [(verb, key, *more) for key in keys])


async def read_all(client: Client, commands: Iterable[tuple[Value, ...]]) -> list[Any]:
    """Do so for commands whose second word is the key.

    Called as scripts are: there may be far more callers than connections in the pool.
    """
    commands = list(commands)
    replies = await asyncio.gather(*(client.call(str(each[1]), *each) for each in commands), return_exceptions=True)
    return [_checked(str(each[1]), reply) for each, reply in zip(commands, replies, strict=True)]


def _checked(key: str, reply: Any) -> Any:
    if not isinstance(reply, BaseException):
        return reply
    if isinstance(reply, ResponseError) and str(reply).startswith("WRONGTYPE"):
        return Unreadable(key, "it is of another type")
    raise reply
