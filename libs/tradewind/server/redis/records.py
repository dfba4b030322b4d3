"""Reads records of which some may have been changed by hand so that they cannot be read."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from redis.exceptions import ResponseError

from tradewind.server.faults import Unreadable
from tradewind.server.redis.client import Client, Value

ANOTHER_TYPE = "it is of another type"


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
    if is_of_another_type(reply):
        return Unreadable(key, ANOTHER_TYPE)
    raise reply


async def read_in_order(key: str, pipeline: Any) -> list[Any]:
    """Return the replies to the commands in a pipeline, all about one key.

    Raises Unreadable if that is of another type.
    """
    replies: list[Any] = []
    for reply in await pipeline.execute(raise_on_error=False):
        found = _checked(key, reply)
        if isinstance(found, Unreadable):
            raise found
        replies.append(found)
    return replies


@contextmanager
def read_of(key: str, why: str = ANOTHER_TYPE) -> Iterator[None]:
    """Raise Unreadable, saying `why`, if what is read under `key` is of another type."""
    try:
        yield
    except ResponseError as error:
        if is_of_another_type(error):
            raise Unreadable(key, why) from error
        raise


def is_of_another_type(error: BaseException) -> bool:
    """Tell whether a command failed because its key is of another type."""
    return isinstance(error, ResponseError) and str(error).startswith("WRONGTYPE")
