"""Scripts on one connection, many at once: every call gets its own reply, whatever happens to the others."""

import asyncio
import random
from functools import partial
from typing import Any

import msgspec
import pytest
from redis.exceptions import (
    AuthenticationError,
    ConnectionError,
    NoPermissionError,
    RedisClusterException,
    RedisError,
    ResponseError,
)

from tests.servers import RedisServer
from tests.waiting import until
from tradewind.server.redis.script import Script

KEY = "trading_flow:{f1}:wide"


class Wide(msgspec.Struct, array_like=True):
    mark: int
    text: str


wide = Script(__name__, "wide", Wide)


def length_of(mark: int) -> int:
    """Return how long a reply call number `mark` asks for: most are short, some longer than any single read."""
    return 700_000 if mark % 40 == 0 else mark % 7 * 100


async def call(client: Any, mark: int) -> None:
    """Run the script and check that this call gets the reply it asked for."""
    reply = await wide(client, [f"trading_flow:{{f{mark % 5}}}:wide"], (mark, length_of(mark)))
    assert (reply.mark, len(reply.text)) == (mark, length_of(mark))


@pytest.mark.parametrize("seed", range(3))
async def test_replies_match_calls_when_others_are_cancelled(redis_server: RedisServer, seed: int) -> None:
    client = redis_server.connect("scheduler")
    choice = random.Random(seed)
    calls = [asyncio.ensure_future(call(client, mark)) for mark in range(200)]
    for cancelled in choice.sample(calls, 60):
        # Some give up before they are sent, some while they wait, and some after others have been answered.
        await asyncio.sleep(0)
        if choice.random() < 0.2:
            await call(client, choice.randrange(1000, 2000))
        cancelled.cancel()
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(end) for end in ends} <= {type(None), asyncio.CancelledError}
    assert sum(end is None for end in ends) >= 140
    await asyncio.gather(*(call(client, mark) for mark in range(200)))


async def test_cancelled_call_raises_at_once_and_runs_at_most_once(redis_server: RedisServer) -> None:
    client = redis_server.connect("scheduler")
    await wide(client, [KEY], (0, 0))
    cancelled = [asyncio.ensure_future(wide(client, [KEY], (mark, 0))) for mark in range(20)]
    await asyncio.sleep(0)
    for each in cancelled:
        each.cancel()
    for each in cancelled:
        with pytest.raises(asyncio.CancelledError):
            await each
    await wide(client, [KEY], (0, 0))
    assert 2 <= int(await client.get(KEY) or 0) <= 22


async def test_failed_call_does_not_affect_others(redis_server: RedisServer) -> None:
    client = redis_server.connect("scheduler")
    ends = await asyncio.gather(
        *(wide(client, [KEY], (mark, 0) if mark % 2 else ("no length", "x")) for mark in range(20)),
        return_exceptions=True,
    )
    assert [end.mark for end in ends if isinstance(end, Wide)] == list(range(1, 20, 2))
    assert sum(isinstance(end, ResponseError) for end in ends) == 10
    with pytest.raises(NoPermissionError):
        await wide(client, ["trading_flow:{t1}:wide"], (1, 0))


async def test_commands_share_the_pipe_with_scripts(redis_server: RedisServer) -> None:
    client = redis_server.connect("scheduler")
    other = "trading_flow:{f9}:wide"
    ends = [client.call(other, "INCR", other) if mark % 2 else call(client, mark) for mark in range(20)]
    assert sorted((await asyncio.gather(*ends))[1::2]) == list(range(1, 11))
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await client.call(other, "LPUSH", other, "x")
    with pytest.raises(NoPermissionError):
        await client.call("trading_flow:{t1}:wide", "GET", "trading_flow:{t1}:wide")


async def test_script_that_the_server_forgot_runs_once_per_call(redis_server: RedisServer) -> None:
    client = redis_server.connect("scheduler")
    await wide(client, [KEY], (0, 0))
    for node in redis_server.nodes:
        await redis_server.on_node(node, "FUNCTION", "FLUSH")
    await asyncio.gather(*(wide(client, [KEY], (mark, 0)) for mark in range(30)))
    assert await client.get(KEY) == b"31"


async def test_concurrent_first_calls_share_one_connection(redis_server: RedisServer) -> None:
    loader, client = redis_server.connect("scheduler"), redis_server.connect("scheduler")
    await wide.load(loader)
    await loader.end()
    await asyncio.gather(*(call(client, mark) for mark in range(50)))
    # A cluster's client also has connections on which it asked for the topology.
    assert await connections(redis_server) <= (1 if len(redis_server.nodes) == 1 else 2 * len(redis_server.nodes))


async def connections(redis_server: RedisServer, mark: bytes = b"") -> int:
    """Return how many connections the scheduler has; with `mark`, only those whose line in the list contains it."""
    lists = [await redis_server.on_node(node, "CLIENT", "LIST") for node in redis_server.nodes]
    lines = [line for listed in lists for line in listed.splitlines()]
    return sum(b" user=scheduler " in line and mark in line for line in lines)


async def test_calls_created_before_the_connection_share_it(redis_server: RedisServer) -> None:
    client = redis_server.connect("scheduler")
    calls = [client.call(KEY, "INCR", KEY) for _ in range(4)]
    for begun in calls:
        await begun
    # A cluster's client has other connections, on which it finds its masters.
    assert await connections(redis_server, b"cmd=incr ") == 1


async def test_wrong_password_fails_every_call(redis_server: RedisServer) -> None:
    client = redis_server.connect("scheduler", password="wrong")
    ends = await asyncio.gather(*(wide(client, [KEY], (1, 0)) for _ in range(5)), return_exceptions=True)
    assert all(isinstance(end, AuthenticationError | RedisClusterException) for end in ends), ends


async def test_closed_client_leaves_no_connection_and_opens_none(redis_server: RedisServer) -> None:
    client = redis_server.connect("scheduler")
    await wide(client, [KEY], (1, 0))
    await client.end()

    await until(partial(_is_gone, redis_server), "the store sees no connection of the scheduler")
    pipeline = client.pipeline(transaction=False)
    pipeline.get(KEY)
    for late in (wide(client, [KEY], (1, 0)), client.ping(), client.get(KEY), pipeline.execute()):
        with pytest.raises((ConnectionError, RedisClusterException), match="closed"):
            await late
    assert await connections(redis_server) == 0


@pytest.mark.parametrize("script", [False, True])
async def test_a_client_closed_while_it_connects_leaves_no_connection(redis_server: RedisServer, script: bool) -> None:
    for steps in range(60):
        client = redis_server.connect("scheduler")
        under_way = asyncio.ensure_future(wide(client, [KEY], (1, 0)) if script else client.get(KEY))
        # Each time one turn of the loop more, so that every moment of connecting is covered, and some moments after.
        for _ in range(steps):
            await asyncio.sleep(0)
        await client.end()
        await asyncio.wait([under_way])
        # It was either answered in time or failed for the only possible reason.
        if (error := under_way.exception()) is not None:
            assert isinstance(error, RedisError | RedisClusterException), repr(error)
    await until(partial(_is_gone, redis_server), "the store sees no connection of the scheduler")


async def _is_gone(server: RedisServer) -> bool:
    return await connections(server) == 0
