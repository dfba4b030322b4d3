"""The shared pub/sub connection: fan-out, patterns, and what happens when the connection breaks."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.servers import RedisServer
from tests.waiting import until
from tradewind.server.redis.client import connect_single
from tradewind.server.redis.subscriber import Subscriber

CHANNEL = "trading_flow:{s0}:wake"
PATTERN = "trading_flow:{s*"


@pytest.fixture
async def subscriber(redis_server: RedisServer) -> AsyncIterator[Subscriber]:
    subscriber = Subscriber(redis_server.url("node_task_manager"))
    subscriber.start()
    yield subscriber
    await subscriber.stop()


class Heard:
    """Records what it hears."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self.gaps = 0

    def __call__(self, channel: str, message: bytes) -> None:
        self.messages.append((channel, message))

    def on_gap(self) -> None:
        self.gaps += 1


async def connections(server: RedisServer) -> int:
    clients = [await server.on_node(node, "CLIENT", "LIST", "TYPE", "pubsub") for node in server.nodes]
    return sum(len(each.decode().splitlines()) for each in clients)


async def test_every_subscriber_of_a_channel_hears_it_over_one_connection(
    redis_server: RedisServer, subscriber: Subscriber
) -> None:
    first, second, pattern, other = Heard(), Heard(), Heard(), Heard()
    await asyncio.gather(
        subscriber.subscribe(CHANNEL, first),
        subscriber.subscribe(CHANNEL, second),
        subscriber.subscribe(PATTERN, pattern),
        subscriber.subscribe("trading_flow:{s0}:other", other),
    )
    assert await connections(redis_server) == 1
    await redis_server.connect("node_task_manager").publish(CHANNEL, "ready")
    await until(lambda: first.messages and second.messages and pattern.messages, "all three heard it")
    assert first.messages == second.messages == pattern.messages == [(CHANNEL, b"ready")]
    assert not other.messages


async def test_what_was_subscribed_may_end(redis_server: RedisServer, subscriber: Subscriber) -> None:
    gone, there = Heard(), Heard()
    end = await subscriber.subscribe(CHANNEL, gone)
    await subscriber.subscribe(CHANNEL, there)
    end()
    end()
    await redis_server.connect("node_task_manager").publish(CHANNEL, "1")
    await until(lambda: there.messages, "the other one heard it")
    assert not gone.messages


async def test_a_callback_that_fails_harms_nobody(redis_server: RedisServer, subscriber: Subscriber) -> None:
    def fail(_channel: str, _message: bytes) -> None:
        raise RuntimeError("on purpose")

    heard = Heard()
    await subscriber.subscribe(CHANNEL, fail)
    await subscriber.subscribe(CHANNEL, heard)
    client = redis_server.connect("node_task_manager")
    await client.publish(CHANNEL, "1")
    await client.publish(CHANNEL, "2")
    await until(lambda: len(heard.messages) == 2, "both messages were heard")


async def test_a_broken_connection_mends_and_the_gap_is_told_once_it_is_closed(
    redis_server: RedisServer, subscriber: Subscriber
) -> None:
    heard = Heard()
    await subscriber.subscribe(CHANNEL, heard, heard.on_gap)
    await subscriber.subscribe(PATTERN, heard)
    assert heard.gaps == 0
    for node in redis_server.nodes:
        await redis_server.on_node(node, "CLIENT", "KILL", "TYPE", "pubsub")
    await until(lambda: heard.gaps == 1, "the gap was told")
    # Nothing is missed from the moment the gap is reported.
    await redis_server.connect("node_task_manager").publish(CHANNEL, "after")
    await until(lambda: len(heard.messages) == 2, "channel and pattern are both subscribed again")


async def test_whatever_goes_wrong_when_it_connects_it_tries_again(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = 0

    def connect(*args: Any, **options: Any) -> Any:
        nonlocal tried
        tried += 1
        if tried <= 2:
            raise RuntimeError("on purpose")
        return connect_single(*args, **options)

    monkeypatch.setattr("tradewind.server.redis.subscriber.connect_single", connect)
    subscriber, heard = Subscriber(redis_server.url("node_task_manager")), Heard()
    subscriber.start()
    try:
        await asyncio.wait_for(subscriber.subscribe(CHANNEL, heard), 30)
    finally:
        await subscriber.stop()
    assert tried >= 3


async def test_subscribing_waits_for_a_store_that_is_away(redis_server: RedisServer) -> None:
    early = Subscriber(redis_server.url("node_task_manager"), password="wrong")
    early.start()
    waiting = asyncio.ensure_future(early.subscribe(CHANNEL, Heard()))
    await asyncio.wait([waiting], timeout=0.3)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await early.stop()


async def test_a_further_subscriber_of_a_channel_waits_as_well_while_the_store_is_away(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = False

    def connect(*args: Any, **options: Any) -> Any:
        if away:
            raise ConnectionRefusedError("on purpose")
        return connect_single(*args, **options)

    monkeypatch.setattr("tradewind.server.redis.subscriber.connect_single", connect)
    subscriber, late = Subscriber(redis_server.url("node_task_manager")), Heard()
    subscriber.start()
    try:
        await subscriber.subscribe(CHANNEL, Heard())
        away = True
        for node in redis_server.nodes:
            await redis_server.on_node(node, "CLIENT", "KILL", "TYPE", "pubsub")
        await until(lambda: subscriber._pubsub is None, "the connection is lost")
        waiting = asyncio.ensure_future(subscriber.subscribe(CHANNEL, late))
        await asyncio.wait([waiting], timeout=0.3)
        assert not waiting.done()
        away = False
        await asyncio.wait_for(waiting, 30)
        await redis_server.connect("node_task_manager").publish(CHANNEL, "ready")
        await until(lambda: late.messages, "it is heard")
    finally:
        await subscriber.stop()


async def test_whoever_gives_up_while_subscribing_breaks_nothing_for_others(
    redis_server: RedisServer, subscriber: Subscriber
) -> None:
    """For example a client whose time runs out at that moment."""
    there = Heard()
    await subscriber.subscribe(CHANNEL, there, there.on_gap)
    for turns in range(12):
        giving_up = asyncio.create_task(subscriber.subscribe(f"trading_flow:{{s0}}:{turns}", Heard()))
        for _ in range(turns):
            await asyncio.sleep(0)
        giving_up.cancel()
        await asyncio.gather(giving_up, return_exceptions=True)
    late = Heard()
    await subscriber.subscribe("trading_flow:{s0}:3", late)
    publisher = redis_server.connect("node_task_manager")
    await publisher.publish("trading_flow:{s0}:3", "1")
    await publisher.publish(CHANNEL, "2")
    await until(lambda: late.messages and there.messages, "both are heard")
    assert there.gaps == 0


async def test_the_first_to_subscribe_may_come_long_after_the_connection(
    redis_server: RedisServer, subscriber: Subscriber
) -> None:
    """redis-py would check the connection, and read the answer where the subscriber is reading."""
    await until(lambda: subscriber._pubsub is not None and subscriber._pubsub.connection, "it is connected")
    assert subscriber._pubsub is not None
    connection: Any = subscriber._pubsub.connection
    # As if the connection had been silent for longer than the interval of checks.
    connection.next_health_check = -1
    await asyncio.sleep(0)
    heard = Heard()
    await asyncio.wait_for(subscriber.subscribe(CHANNEL, heard, heard.on_gap), 60)
    await redis_server.connect("node_task_manager").publish(CHANNEL, "ready")
    await until(lambda: heard.messages, "it is heard")
    assert subscriber._pubsub is not None
    assert subscriber._pubsub.connection is connection
    assert heard.gaps == 0


async def test_a_store_that_says_nothing_any_more_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store's machine is gone, and nothing is left to close the connection."""
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        subscribed = False
        while head := await reader.readline():
            words = []
            for _ in range(int(head[1:])):
                size = int((await reader.readline())[1:])
                words.append((await reader.readexactly(size + 2))[:-2])
            match words:
                case [b"PING", *_]:
                    writer.write(b"" if subscribed else b"+PONG\r\n")
                case [b"SUBSCRIBE", channel]:
                    subscribed = True
                    writer.write(b"*3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:1\r\n" % (len(channel), channel))
                case _:
                    writer.write(b"+OK\r\n")
        writer.close()

    def connect(*args: Any, **options: Any) -> Any:
        client = connect_single(*args, **options)
        client.connection_pool.connection_kwargs["health_check_interval"] = 0.2
        return client

    monkeypatch.setattr("tradewind.server.redis.subscriber.connect_single", connect)
    monkeypatch.setattr("tradewind.server.redis.subscriber._POLL_S", 0.1)
    store = await asyncio.start_server(serve, "127.0.0.1", 0)
    subscriber, heard = Subscriber(f"redis://127.0.0.1:{store.sockets[0].getsockname()[1]}"), Heard()
    subscriber.start()
    try:
        await asyncio.wait_for(subscriber.subscribe(CHANNEL, heard, heard.on_gap), 10)
        assert connections == 1
        await until(lambda: heard.gaps, "it has connected anew, and tells of the gap", timeout=10)
        assert connections >= 2
    finally:
        await subscriber.stop()
        store.close()
