"""Typed Lua scripts, on every kind of store."""

import msgspec
import pytest
from redis.exceptions import ResponseError

from tests.servers import RedisServer
from tests.waiting import until
from tradewind.server.metrics import REGISTRY, SWITCH
from tradewind.server.redis.library import library
from tradewind.server.redis.script import Script

KEY = "trading_flow:{f1}:flow:momentum"


class Echo(msgspec.Struct, array_like=True):
    value: list[int | str | float | dict[str, bool]]
    now_ms: int
    key: str


class Shapes(msgspec.Struct):
    name: str
    ratio: float
    empty: list[str]
    nested: list[dict[str, int | str]]


echo = Script(__name__, "echo", Echo)
count = Script(__name__, "count", int)
shapes = Script(__name__, "shapes", Shapes)
counted = Script(__name__, "counted", list[int])


class Arguments(msgspec.Struct, array_like=True):
    now_ms: int
    value: list[int | str | float | dict[str, bool]]


async def test_arguments_and_reply_keep_their_types(redis_server: RedisServer) -> None:
    value: list[int | str | float | dict[str, bool]] = [2**52, -1, "naïve \x00 text", 0.5, {"yes": True}]
    reply = await echo(redis_server.connect("scheduler"), [KEY], Arguments(1234, value))
    assert reply == Echo(value, 1234, KEY)


async def test_now_is_the_callers_time_or_that_of_the_store(redis_server: RedisServer) -> None:
    client = redis_server.connect("scheduler")
    assert (await echo(client, [KEY], (99, []))).now_ms == 99
    first = (await echo(client, [KEY], (0, []))).now_ms
    assert first > 1_700_000_000_000

    async def time_advances() -> bool:
        return (await echo(client, [KEY], (0, []))).now_ms > first

    await until(time_advances, "the store's time goes on by a millisecond")


async def test_floats_empty_tables_and_nesting_decode_to_the_declared_types(redis_server: RedisServer) -> None:
    reply = await shapes(redis_server.connect("scheduler"), [KEY], ())
    assert reply == Shapes("flow", 2.0, [], [{"id": "a", "at": 1_700_000_000_000}])


async def test_file_included_by_several_scripts_is_loaded_once(redis_server: RedisServer) -> None:
    assert library(__name__).text("").count("local function add(") == 1
    client = redis_server.connect("scheduler")
    assert await count(client, [KEY], [2]) == 2
    assert await count(client, [KEY], [3]) == 5


async def test_each_run_starts_with_fresh_variables(redis_server: RedisServer) -> None:
    client = redis_server.connect("scheduler")
    _, _, ever = await counted(client, [KEY], [3])
    assert [await counted(client, [KEY], [3]) for _ in range(2)] == [[6, 1, ever + 1], [9, 1, ever + 2]]


async def test_script_that_the_server_forgot_is_loaded_and_runs_once(redis_server: RedisServer) -> None:
    client = redis_server.connect()
    for amount in range(1, 4):
        for node in redis_server.nodes:
            await redis_server.on_node(node, "FUNCTION", "FLUSH")
        assert await count(client, [KEY], [1]) == amount


async def test_many_runs_share_a_round_trip_even_when_the_script_is_unknown(redis_server: RedisServer) -> None:
    for node in redis_server.nodes:
        await redis_server.on_node(node, "FUNCTION", "FLUSH")
    client = redis_server.connect("scheduler")
    keys = [f"trading_flow:{{f{partition}}}:n" for partition in range(8)]
    assert await count.many(client, [([key], [7]) for key in keys]) == [7] * 8
    assert await count.many(client, [([key], [1]) for key in keys]) == [8] * 8
    assert await count.many(client, []) == []


@pytest.mark.parametrize("known", [True, False])
async def test_error_of_one_run_is_raised_after_the_others_have_run(redis_server: RedisServer, known: bool) -> None:
    client = redis_server.connect("scheduler")
    for node in redis_server.nodes:
        await redis_server.on_node(node, "FUNCTION", "FLUSH")
    if known:
        await count.load(redis_server.connect())
    await client.set(KEY, "not a number")
    other = "trading_flow:{f1}:other"
    with pytest.raises(ResponseError, match="not an integer"):
        await count.many(client, [([KEY], [1]), ([other], [5])])
    assert await client.get(other) == b"5"
    with pytest.raises(ResponseError, match="WRONG on purpose"):
        await Script(__name__, "lines", int)(client, [KEY], ())


async def test_each_failed_run_is_counted_once(redis_server: RedisServer) -> None:
    def failures() -> float:
        return REGISTRY.get_sample_value("tradewind_store_script_errors_total") or 0.0

    client = redis_server.connect("scheduler")
    await client.set(KEY, "not a number")
    calls = [([KEY], [1]), ([KEY], [2]), (["trading_flow:{f1}:other"], [5])]
    SWITCH.turn(1)
    try:
        for known in (False, True):
            for node in redis_server.nodes:
                await redis_server.on_node(node, "FUNCTION", "FLUSH")
            if known:
                await count.load(redis_server.connect())
            before = failures()
            with pytest.raises(ResponseError, match="not an integer"):
                await count.many(client, calls)
            assert failures() == before + 2
    finally:
        SWITCH.turn(-1)


async def test_script_may_touch_only_keys_of_its_user(redis_server: RedisServer) -> None:
    with pytest.raises(ResponseError, match=r"(?i)acl|permission"):
        await count(redis_server.connect("trigger"), [KEY], [1])


def test_a_reply_of_another_type_names_the_script() -> None:
    with pytest.raises(msgspec.ValidationError, match="script count: Expected `int`"):
        count.decode(msgspec.msgpack.encode("text"))


def test_a_missing_file_is_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"has no script lua/nothing\.lua"):
        Script(__name__, "nothing", int)
