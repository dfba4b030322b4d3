"""Reads records of which some may have been changed by hand so that they cannot be read."""

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.exceptions import ResponseError

from tradewind.server.faults import Unreadable
from tradewind.server.redis.client import Client, Value


async def read_each(client: Client, keys: Sequence[str], verb: str, *more: Value) -> list[Any]:
    """Return the reply to a command about each key, an Unreadable for a key of another type; raises as redis-py does.

    Called as scripts are: there may be far more callers than connections in the pool.
    """
    calls = (client.call(key, verb, key, *more) for key in keys)
    replies = await asyncio.gather(*calls, return_exceptions=True)
    return [_checked(key, reply) for key, reply in zip(keys, replies, strict=True)]


def _checked(key: str, reply: Any) -> Any:
    if not isinstance(reply, BaseException):
        return reply
    if isinstance(reply, ResponseError) and str(reply).startswith("WRONGTYPE"):
        return Unreadable(key, "it is of another type")
    raise reply
