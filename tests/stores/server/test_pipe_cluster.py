"""Scripts on a cluster go to the master of their slot, and follow it when it moves or dies."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from redis.crc import key_slot
from redis.exceptions import ClusterDownError, OutOfMemoryError, RedisClusterException, RedisError
from redis.exceptions import ConnectionError as StoreConnectionError

from tests.servers import RedisServer, RedisServers
from tests.waiting import until
from tradewind.server.redis.acl import ADMIN
from tradewind.server.redis.client import connect
from tradewind.server.redis.embedded import EmbeddedStore
from tradewind.server.redis.outages import MESSAGES
from tradewind.server.redis.piped import PipedCluster
from tradewind.server.redis.script import Script

KEY = "trading_flow:{f1}:n"
SLOT = key_slot(KEY.encode())

count = Script(__name__, "count", int)
copy = Script(__name__, "copy", int)


@pytest.fixture(scope="session")
def running(redis_servers: RedisServers) -> RedisServer:
    """Three masters; not started in an async fixture, since no other loop can run within its loop."""
    return redis_servers.get("cluster")


@pytest_asyncio.fixture
async def cluster(running: RedisServer) -> AsyncIterator[RedisServer]:
    """Three masters with no keys."""
    await running.flush()
    yield running
    await running.close_clients()


async def owner_and_other(cluster: RedisServer) -> tuple[EmbeddedStore, EmbeddedStore]:
    """Return the master that owns the slot, and one that does not."""
    owners = {await owns(cluster, node): node for node in cluster.nodes}
    return owners[True], owners[False]


async def owns(cluster: RedisServer, node: EmbeddedStore) -> bool:
    """Tell whether a master owns the slot by its own account."""
    nodes: bytes = await cluster.on_node(node, "CLUSTER", "NODES")
    return covers(next(line for line in nodes.decode().splitlines() if "myself" in line))


def covers(line: str) -> bool:
    """Tell whether a line of CLUSTER NODES includes the slot."""
    ranges = [part.partition("-") for part in line.split()[8:] if not part.startswith("[")]
    return any(int(first) <= SLOT <= int(last or first) for first, _, last in ranges)


async def name_of(cluster: RedisServer, node: EmbeddedStore) -> str:
    """Return the id of a master."""
    name: bytes = await cluster.on_node(node, "CLUSTER", "MYID")
    return name.decode()


async def give_slot(cluster: RedisServer, to: EmbeddedStore) -> None:
    """Make a master the owner of the slot, which holds no keys, and return when all masters agree."""
    name = await name_of(cluster, to)
    others = [node for node in cluster.nodes if node is not to]
    for node in others:
        if await owns(cluster, node):
            # Importing a slot gives a master a newer epoch, so that the others do not take the slot back.
            importing = ("CLUSTER", "SETSLOT", str(SLOT), "IMPORTING", await name_of(cluster, node))
            await cluster.on_node(to, *importing)
    for node in [to, *others]:
        await cluster.on_node(node, "CLUSTER", "SETSLOT", str(SLOT), "NODE", name)

    async def agreed() -> bool:
        views = [await cluster.on_node(node, "CLUSTER", "NODES") for node in cluster.nodes]
        return all(covers(line) == line.startswith(name) for view in views for line in view.decode().splitlines())

    await until(agreed, "all masters name the same owner of the slot")


async def runs_on(cluster: RedisServer, node: EmbeddedStore) -> int:
    """Return how many FCALL commands a master was sent, including redirected ones."""
    return await calls_of(cluster, node, "fcall")


async def calls_of(cluster: RedisServer, node: EmbeddedStore, command: str) -> int:
    """Return how often a command was sent to a master, including rejected ones."""
    stats = await cluster.on_node(node, "INFO", "COMMANDSTATS")
    found = stats.get(f"cmdstat_{command}", {})
    return int(found.get("calls", 0)) + int(found.get("rejected_calls", 0))


async def test_calls_follow_a_moved_slot_and_then_go_there_directly(cluster: RedisServer) -> None:
    client, owner, other = cluster.connect(), *await owner_and_other(cluster)
    assert await count(client, [KEY], [1]) == 1
    await client.delete(KEY)
    await give_slot(cluster, other)
    try:
        assert await asyncio.gather(*(count(client, [KEY], [0]) for _ in range(5))) == [0] * 5
        calls_before = await runs_on(cluster, owner)
        assert calls_before > 0
        assert [await count(client, [KEY], [1]) for _ in range(5)] == [1, 2, 3, 4, 5]
        assert await client.call(KEY, "INCR", KEY) == 6
        assert await runs_on(cluster, owner) == calls_before
        await client.delete(KEY)
    finally:
        await give_slot(cluster, owner)
    assert await client.call(KEY, "INCR", KEY) == 1
    assert await count(client, [KEY], [1]) == 2


async def begin_move(cluster: RedisServer, owner: EmbeddedStore, to: EmbeddedStore) -> None:
    """Begin to move the slot, none of whose keys moves yet."""
    await cluster.on_node(to, "CLUSTER", "SETSLOT", str(SLOT), "IMPORTING", await name_of(cluster, owner))
    await cluster.on_node(owner, "CLUSTER", "SETSLOT", str(SLOT), "MIGRATING", await name_of(cluster, to))


async def move_keys(cluster: RedisServer, owner: EmbeddedStore, to: EmbeddedStore, *keys: str) -> None:
    """Move some keys of the slot, as redis-cli does."""
    password = to.password_of(ADMIN)
    target = ("127.0.0.1", str(to.port), "", "0", "5000", "AUTH2", ADMIN, password)
    assert await cluster.on_node(owner, "MIGRATE", *target, "KEYS", *keys) == b"OK"


async def end_move(cluster: RedisServer, owner: EmbeddedStore, to: EmbeddedStore) -> None:
    """End the move, wherever the keys are, and give the slot back without keys."""
    for node in (owner, to):
        await cluster.on_node(node, "CLUSTER", "SETSLOT", str(SLOT), "STABLE")
    # A master that has keys of a slot does not give it away.
    await cluster.flush()
    await give_slot(cluster, owner)


async def test_commands_follow_a_slot_that_is_moving(cluster: RedisServer) -> None:
    client, owner, other = cluster.connect(), *await owner_and_other(cluster)
    await begin_move(cluster, owner, other)
    try:
        # The owner does not have the key, so it is looked for where the slot goes.
        assert [await client.call(KEY, "INCR", KEY) for _ in range(3)] == [1, 2, 3]
        assert await cluster.on_node(owner, "CLUSTER", "COUNTKEYSINSLOT", str(SLOT)) == 0
    finally:
        await end_move(cluster, owner, other)


async def test_commands_follow_a_slot_that_is_moving_whichever_connections_are_open(cluster: RedisServer) -> None:
    client, owner, other = cluster.connect(), *await owner_and_other(cluster)
    assert isinstance(client, PipedCluster)
    assert await client.get(KEY) is None
    target = client.nodes_manager.nodes_cache[f"127.0.0.1:{other.port}"]
    await asyncio.gather(*(target.execute_command("PING") for _ in range(2)))
    await begin_move(cluster, owner, other)
    try:
        assert [await client.call(KEY, "INCR", KEY) for _ in range(3)] == [1, 2, 3]
        assert await asyncio.gather(*(client.get(KEY) for _ in range(5))) == [b"3"] * 5
    finally:
        await end_move(cluster, owner, other)


async def test_commands_follow_a_slot_to_a_master_that_had_none_before(cluster: RedisServer) -> None:
    client, owner, other = cluster.connect(), *await owner_and_other(cluster)
    assert isinstance(client, PipedCluster)
    assert await client.get(KEY) is None
    # A master is known only by its slots.
    del client.nodes_manager.nodes_cache[f"127.0.0.1:{other.port}"]
    await begin_move(cluster, owner, other)
    try:
        assert [await client.call(KEY, "INCR", KEY) for _ in range(3)] == [1, 2, 3]
        assert await client.get(KEY) == b"3"
    finally:
        await end_move(cluster, owner, other)


@pytest.mark.parametrize("moved", [f"{KEY}:copy", KEY])
async def test_scripts_change_nothing_while_their_slot_is_moving(cluster: RedisServer, moved: str) -> None:
    """Neither master has all keys: at the old one a script would stop halfway, at the new one it would begin anew."""
    client, owner, other = cluster.connect("scheduler"), *await owner_and_other(cluster)
    assert await copy(client, [KEY], [5]) == 5
    await begin_move(cluster, owner, other)
    try:
        await move_keys(cluster, owner, other, moved)
        with pytest.raises(tuple(MESSAGES), match="TTL exhausted"):
            await copy(client, [KEY], [1])
        assert [await client.get(key) for key in (KEY, f"{KEY}:copy")] == [b"5", b"5"]
    finally:
        await end_move(cluster, owner, other)


async def test_scripts_wait_for_a_slot_that_moves_for_a_moment(cluster: RedisServer) -> None:
    client, owner, other = cluster.connect("scheduler"), *await owner_and_other(cluster)
    assert await copy(client, [KEY], [5]) == 5
    await begin_move(cluster, owner, other)
    try:
        running = asyncio.ensure_future(copy(client, [KEY], [1]))
        await move_keys(cluster, owner, other, KEY, f"{KEY}:copy")
        await give_slot(cluster, other)
        assert await running == 6
        assert await client.get(f"{KEY}:copy") == b"6"
    finally:
        await end_move(cluster, owner, other)


async def test_concurrent_first_commands_reach_their_masters(cluster: RedisServer) -> None:
    for _ in range(5):
        client = cluster.connect("scheduler")
        keys = [f"trading_flow:{{f{partition}}}:n" for partition in range(12)]
        assert await asyncio.gather(*(client.get(key) for key in keys)) == [None] * 12


async def test_calls_to_other_masters_continue_while_one_hangs(cluster: RedisServer) -> None:
    client, owner = cluster.connect(socket_timeout_s=1.0, connect_timeout_s=1.0), (await owner_and_other(cluster))[0]
    keys = [f"trading_flow:{{f{partition}}}:n" for partition in range(12)]
    assert await asyncio.gather(*(count(client, [key], [1]) for key in keys)) == [1] * 12
    calls_before = [await calls_of(cluster, node, "cluster|slots") for node in cluster.nodes]
    assert owner.pid is not None
    os.kill(owner.pid, signal.SIGSTOP)
    try:
        ends = await asyncio.gather(*(count(client, [key], [1]) for key in keys), return_exceptions=True)
        # Now the slots are looked up anew; the owner, still the first of all masters, must not be waited for.
        later = await asyncio.gather(*(count(client, [key], [0]) for key in keys), return_exceptions=True)
    finally:
        os.kill(owner.pid, signal.SIGCONT)
    assert 2 in ends
    assert 2 in later
    assert isinstance(ends[keys.index(KEY)], RedisError)

    async def answers() -> bool:
        try:
            return await count(client, [KEY], [0]) in (1, 2)
        except (RedisError, RedisClusterException, ClusterDownError):
            return False

    await until(answers, "the cluster is whole again")
    # The slots are looked up anew, since another node might have become master.
    assert [await calls_of(cluster, node, "cluster|slots") for node in cluster.nodes] != calls_before


async def test_master_that_refuses_the_library_fails_only_its_own_calls(cluster: RedisServer) -> None:
    client, owner = cluster.connect(), (await owner_and_other(cluster))[0]
    keys = [f"trading_flow:{{f{partition}}}:n" for partition in range(12)]
    for node in cluster.nodes:
        await cluster.on_node(node, "FUNCTION", "FLUSH")
    await cluster.on_node(owner, "CONFIG", "SET", "maxmemory", "1")
    try:
        ends = await asyncio.gather(*(count(client, [key], [1]) for key in keys), return_exceptions=True)
    finally:
        await cluster.on_node(owner, "CONFIG", "SET", "maxmemory", "0")
    assert {end if end == 1 else type(end) for end in ends} == {1, OutOfMemoryError}
    assert isinstance(ends[keys.index(KEY)], OutOfMemoryError)
    assert await count(client, [KEY], [1]) == 1


async def test_cluster_without_masters_is_an_error(cluster: RedisServer) -> None:
    client = cluster.connect()
    assert await client.get(KEY) is None
    assert isinstance(client, PipedCluster)
    client.nodes_manager.nodes_cache.clear()
    with pytest.raises(RedisClusterException, match="names no master"):
        await count.load(client)


async def test_calls_wait_for_one_attempt_to_find_the_masters(cluster: RedisServer) -> None:
    node = cluster.nodes[0]
    client = connect(f"redis+cluster://127.0.0.1:{node.port}", socket_timeout_s=0.5)
    assert node.pid is not None
    os.kill(node.pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(10):
            ends = await asyncio.gather(*(client.call(KEY, "GET", KEY) for _ in range(100)), return_exceptions=True)
        assert {type(end) for end in ends} == {RedisClusterException}
        calls = [asyncio.ensure_future(client.call(KEY, "GET", KEY)) for _ in range(10)]
        await asyncio.sleep(0)
        await client.end()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(end) for end in ends] == [StoreConnectionError] * 10
    finally:
        os.kill(node.pid, signal.SIGCONT)


async def test_closed_client_fails_calls_without_following_redirections(cluster: RedisServer) -> None:
    client, owner = cluster.connect(), (await owner_and_other(cluster))[0]
    assert await count(client, [KEY], [1]) == 1
    assert owner.pid is not None
    os.kill(owner.pid, signal.SIGSTOP)
    try:
        calls = [asyncio.ensure_future(count(client, [KEY], [1])) for _ in range(10)]
        await asyncio.sleep(0)
        await client.end()
        ends = await asyncio.gather(*calls, return_exceptions=True)
    finally:
        os.kill(owner.pid, signal.SIGCONT)
    assert [type(end) for end in ends] == [StoreConnectionError] * 10
    assert 1 <= await count(cluster.connect(), [KEY], [0]) <= 11
