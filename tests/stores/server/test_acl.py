"""Each service's store user, tried on the keys and channels of every other service."""

from itertools import permutations

import pytest
from redis.exceptions import NoPermissionError, ResponseError

from tests.servers import SERVICES, RedisServer
from tradewind.access.stores import keys as access
from tradewind.node_task_manager.stores import keys as node_task_manager
from tradewind.registry.domain.limits import Lifetimes, Limits
from tradewind.registry.stores import keys as registry
from tradewind.registry.stores.redis import RedisRegistry
from tradewind.scheduler.stores import keys as scheduler
from tradewind.server.clock import ScriptTime
from tradewind.server.redis.client import connect
from tradewind.server.redis.library import library
from tradewind.trigger.stores import keys as trigger

PREFIX = "trading_flow"
OWN = {
    "scheduler": (scheduler.Keys(PREFIX).flow("momentum"), f"{PREFIX}:{{f7}}:changes"),
    "node_task_manager": (node_task_manager.Keys(PREFIX, 3).run("momentum:1:0"), f"{PREFIX}:{{s3}}:wake"),
    "access": (access.Keys(PREFIX).user("u"), f"{PREFIX}:{{a3}}:changes"),
    "registry": (registry.Keys(PREFIX).worker("w"), f"{PREFIX}:{{registry}}:changes"),
    "trigger": (trigger.Keys(PREFIX).trigger(3, "momentum"), f"{PREFIX}:{{t3}}:triggers:wake"),
}
PAIRS = list(permutations(OWN, 2))
COMMANDS = (
    ("GET",),
    ("SET", "x"),
    ("DEL",),
    ("HGETALL",),
    ("XADD", "*", "a", "1"),
    ("EXPIRE", "1"),
)
FORBIDDEN_FUNCTION_COMMANDS = (
    ("LIST", "WITHCODE"),
    ("DUMP",),
    ("DELETE", "mine"),
    ("FLUSH",),
    ("STATS",),
    ("KILL",),
    ("RESTORE", "x"),
)
FORGED = 4711


def test_every_service_user_is_covered() -> None:
    assert sorted(OWN) == sorted(user.name for user in SERVICES)


@pytest.mark.parametrize(("service", "other"), PAIRS)
async def test_service_is_refused_access_to_keys_of_another(
    redis_server: RedisServer, service: str, other: str
) -> None:
    client = redis_server.connect(service)
    own, foreign = OWN[service][0], OWN[other][0]
    assert await client.set(own, "1")
    for name, *rest in COMMANDS:
        with pytest.raises(NoPermissionError):
            await client.execute_command(name, foreign, *rest)
    with pytest.raises(NoPermissionError):
        await client.eval("return redis.call('GET', KEYS[1])", 1, foreign)
    assert await redis_server.connect(service).get(own) == b"1"


@pytest.mark.parametrize(("service", "other"), PAIRS)
@pytest.mark.parametrize("call", ["call", "pcall"])
async def test_script_is_refused_access_to_keys_of_another_service(
    redis_server: RedisServer, service: str, other: str, call: str
) -> None:
    """A script names a key of its own service, and then reaches for another service's."""
    client = redis_server.connect(service)
    own, foreign = OWN[service][0], OWN[other][0]
    script = f"return redis.{call}('SET', ARGV[1], 'x')"
    refusal = "(?i)permission|can't access"
    if redis_server.kind == "cluster":
        # A node may object first that the key is in a slot of another node.
        refusal += "|local|slot"
    with pytest.raises(ResponseError, match=refusal):
        await client.eval(script, 1, own, foreign)
    assert foreign not in await redis_server.keys()


@pytest.mark.parametrize(("service", "other"), PAIRS)
async def test_service_may_not_publish_on_channels_of_another(
    redis_server: RedisServer, service: str, other: str
) -> None:
    with pytest.raises(NoPermissionError):
        await redis_server.connect(service).publish(OWN[other][1], "x")


@pytest.mark.parametrize("service", OWN)
async def test_service_may_add_functions_but_neither_list_nor_delete_any(
    redis_server: RedisServer, service: str
) -> None:
    for node in redis_server.nodes:
        await redis_server.on_node(node, "FUNCTION", "FLUSH")
    client = connect(redis_server.nodes[0].url_for(service))
    try:
        await client.load_functions("#!lua name=mine\nredis.register_function('mine', function() return 1 end)")
        assert await client.execute_command("FCALL", "mine", 0) == 1
        for command in FORBIDDEN_FUNCTION_COMMANDS:
            with pytest.raises(NoPermissionError):
                await client.execute_command("FUNCTION", *command)
        assert await client.execute_command("FCALL", "mine", 0) == 1
    finally:
        await client.end()
        await redis_server.on_node(redis_server.nodes[0], "FUNCTION", "FLUSH")


def forged(password: str, *, cluster: bool) -> str:
    """Return a library that would replace the registry's, if the registry logs in with `password`."""
    digest = library("tradewind.registry.stores").digest(password, cluster=cluster)
    function = f"redis.register_function('sweep_{digest}', function() return cmsgpack.pack({{{FORGED}, {{}}}}) end)"
    return f"#!lua name=tradewind_{digest}\n{function}"


async def test_service_cannot_replace_functions_of_another_without_its_password(
    redis_server: RedisServer,
) -> None:
    intruder, service = redis_server.connect("trigger"), redis_server.connect("registry")
    cluster = redis_server.kind == "cluster"
    stores = RedisRegistry(service, registry.Keys(PREFIX), ScriptTime(), Lifetimes(), Limits())
    for node in redis_server.nodes:
        await redis_server.on_node(node, "FUNCTION", "FLUSH")
    try:
        for guess in ("", "registry", intruder.password):
            await intruder.load_functions(forged(guess, cluster=cluster))
        assert await stores.sweep() == 0
        for node in redis_server.nodes:
            await redis_server.on_node(node, "FUNCTION", "FLUSH")
        await intruder.load_functions(forged(service.password, cluster=cluster))
        assert await stores.sweep() == FORGED
    finally:
        for node in redis_server.nodes:
            await redis_server.on_node(node, "FUNCTION", "FLUSH")
