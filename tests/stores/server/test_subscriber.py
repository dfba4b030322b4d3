"""The shared pub/sub connection: fan-out, patterns, and what happens when the connection breaks."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio.client import PubSub
from redis.exceptions import ConnectionError
from structlog.testing import capture_logs

from tests.no_writes import failing_disk
from tests.servers import RedisServer
from tests.waiting import until
from tradewind.server.redis import subscriber as subscriber_module
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


class Receiver:
    """Records messages and gaps."""

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


async def test_all_subscribers_receive_messages_over_one_connection(
    redis_server: RedisServer, subscriber: Subscriber
) -> None:
    first, second, pattern, other = Receiver(), Receiver(), Receiver(), Receiver()
    await asyncio.gather(
        subscriber.subscribe(CHANNEL, first),
        subscriber.subscribe(CHANNEL, second),
        subscriber.subscribe(PATTERN, pattern),
        subscriber.subscribe("trading_flow:{s0}:other", other),
    )
    assert await connections(redis_server) == 1
    await redis_server.connect("node_task_manager").publish(CHANNEL, "ready")
    await until(lambda: first.messages and second.messages and pattern.messages, "all three have received it")
    assert first.messages == second.messages == pattern.messages == [(CHANNEL, b"ready")]
    assert not other.messages


@pytest.mark.parametrize("refused", ["resetchannels", "-@pubsub"])
async def test_user_without_right_to_channels_is_refused_instead_of_waiting(
    redis_server: RedisServer, refused: str
) -> None:
    rules = {"resetchannels": "&trading_flow:{s*", "-@pubsub": "+@pubsub"}
    subscriber = Subscriber(redis_server.url("node_task_manager"))
    await set_user(redis_server, refused)
    try:
        subscriber.start()
        with pytest.raises(PermissionError, match=re.escape(f"the store refuses its user the channel {PATTERN}: ")):
            await subscriber.subscribe(PATTERN, Receiver())
    finally:
        await set_user(redis_server, rules[refused])
    receiver = Receiver()
    await subscriber.subscribe(PATTERN, receiver)
    await redis_server.connect("node_task_manager").publish(CHANNEL, "1")
    await until(lambda: receiver.messages, "it listens once it has the right")
    await subscriber.stop()


async def set_user(server: RedisServer, rule: str) -> None:
    """Give the user of the tests a rule at every node."""
    for node in server.nodes:
        await server.on_node(node, "ACL", "SETUSER", "node_task_manager", rule)


async def test_ended_subscription_receives_nothing(redis_server: RedisServer, subscriber: Subscriber) -> None:
    ended, remaining = Receiver(), Receiver()
    end = await subscriber.subscribe(CHANNEL, ended)
    await subscriber.subscribe(CHANNEL, remaining)
    end()
    end()
    await redis_server.connect("node_task_manager").publish(CHANNEL, "1")
    await until(lambda: remaining.messages, "the other one has received it")
    assert not ended.messages


async def test_failing_callback_does_not_affect_others(redis_server: RedisServer, subscriber: Subscriber) -> None:
    def fail(_channel: str, _message: bytes) -> None:
        raise RuntimeError("on purpose")

    receiver = Receiver()
    await subscriber.subscribe(CHANNEL, fail)
    await subscriber.subscribe(CHANNEL, receiver)
    client = redis_server.connect("node_task_manager")
    await client.publish(CHANNEL, "1")
    await client.publish(CHANNEL, "2")
    await until(lambda: len(receiver.messages) == 2, "both messages are received")


async def test_gap_is_reported_after_a_broken_connection_is_restored(
    redis_server: RedisServer, subscriber: Subscriber
) -> None:
    receiver = Receiver()
    await subscriber.subscribe(CHANNEL, receiver, receiver.on_gap)
    await subscriber.subscribe(PATTERN, receiver)
    assert receiver.gaps == 0
    for node in redis_server.nodes:
        await redis_server.on_node(node, "CLIENT", "KILL", "TYPE", "pubsub")
    await until(lambda: receiver.gaps == 1, "the gap is reported")
    # Nothing is missed from the moment the gap is reported.
    await redis_server.connect("node_task_manager").publish(CHANNEL, "after")
    await until(lambda: len(receiver.messages) == 2, "channel and pattern are both subscribed again")


async def test_connecting_is_retried_after_any_error(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = 0

    def connect(*args: Any, **options: Any) -> Any:
        nonlocal attempts
        attempts += 1
        if attempts <= 2:
            raise RuntimeError("on purpose")
        return connect_single(*args, **options)

    monkeypatch.setattr("tradewind.server.redis.subscriber.connect_single", connect)
    subscriber, receiver = Subscriber(redis_server.url("node_task_manager")), Receiver()
    subscriber.start()
    try:
        await asyncio.wait_for(subscriber.subscribe(CHANNEL, receiver), 30)
    finally:
        await subscriber.stop()
    assert attempts >= 3


async def test_subscribing_waits_for_an_unreachable_store(redis_server: RedisServer) -> None:
    early = Subscriber(redis_server.url("node_task_manager"), password="wrong")
    early.start()
    waiting = asyncio.ensure_future(early.subscribe(CHANNEL, Receiver()))
    await asyncio.wait([waiting], timeout=0.3)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await early.stop()


async def test_second_subscriber_of_a_channel_also_waits_for_an_unreachable_store(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = False

    def connect(*args: Any, **options: Any) -> Any:
        if away:
            raise ConnectionRefusedError("on purpose")
        return connect_single(*args, **options)

    monkeypatch.setattr("tradewind.server.redis.subscriber.connect_single", connect)
    subscriber, later = Subscriber(redis_server.url("node_task_manager")), Receiver()
    subscriber.start()
    try:
        await subscriber.subscribe(CHANNEL, Receiver())
        away = True
        for node in redis_server.nodes:
            await redis_server.on_node(node, "CLIENT", "KILL", "TYPE", "pubsub")
        await until(lambda: subscriber._pubsub is None, "the connection is lost")
        waiting = asyncio.ensure_future(subscriber.subscribe(CHANNEL, later))
        await asyncio.wait([waiting], timeout=0.3)
        assert not waiting.done()
        away = False
        await asyncio.wait_for(waiting, 30)
        await redis_server.connect("node_task_manager").publish(CHANNEL, "ready")
        await until(lambda: later.messages, "the message is received")
    finally:
        await subscriber.stop()


async def test_cancelled_subscription_does_not_affect_others(redis_server: RedisServer, subscriber: Subscriber) -> None:
    """For example a client whose time runs out at that moment."""
    remaining = Receiver()
    await subscriber.subscribe(CHANNEL, remaining, remaining.on_gap)
    for turns in range(12):
        giving_up = asyncio.create_task(subscriber.subscribe(f"trading_flow:{{s0}}:{turns}", Receiver()))
        for _ in range(turns):
            await asyncio.sleep(0)
        giving_up.cancel()
        await asyncio.gather(giving_up, return_exceptions=True)
    later = Receiver()
    await subscriber.subscribe("trading_flow:{s0}:3", later)
    publisher = redis_server.connect("node_task_manager")
    await publisher.publish("trading_flow:{s0}:3", "1")
    await publisher.publish(CHANNEL, "2")
    await until(lambda: later.messages and remaining.messages, "both messages are received")
    assert remaining.gaps == 0


async def test_first_subscription_works_long_after_connecting(
    redis_server: RedisServer, subscriber: Subscriber
) -> None:
    """redis-py would check the connection, and read the answer where the subscriber is reading."""
    await until(lambda: subscriber._pubsub is not None and subscriber._pubsub.connection, "it is connected")
    assert subscriber._pubsub is not None
    connection: Any = subscriber._pubsub.connection
    # As if the connection had been silent for longer than the interval of checks.
    connection.next_health_check = -1
    await asyncio.sleep(0)
    receiver = Receiver()
    await asyncio.wait_for(subscriber.subscribe(CHANNEL, receiver, receiver.on_gap), 60)
    await redis_server.connect("node_task_manager").publish(CHANNEL, "ready")
    await until(lambda: receiver.messages, "the message is received")
    assert subscriber._pubsub is not None
    assert subscriber._pubsub.connection is connection
    assert receiver.gaps == 0


async def test_outage_of_the_store_is_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = 0

    def refuse(*_: Any, **_options: Any) -> Any:
        nonlocal attempts
        attempts += 1
        raise ConnectionError(f"connection {attempts} is refused")

    monkeypatch.setattr("tradewind.server.redis.subscriber._BACKOFF_S", (0.01, 0.01))
    monkeypatch.setattr("tradewind.server.redis.subscriber.connect_single", refuse)
    subscriber = Subscriber("redis://127.0.0.1")
    with capture_logs() as logs:
        subscriber.start()
        await until(lambda: attempts > 3, "it has tried again and again")
        await subscriber.stop()
    assert [(log["event"], log["what"]) for log in logs] == [("subscriber_lost_store", "ConnectionError")]


def check_often(monkeypatch: pytest.MonkeyPatch, every_s: float, poll_s: float) -> None:
    """Check a connection that has been idle for `every_s`, and poll it for `poll_s` at a time."""

    def connect(*args: Any, **options: Any) -> Any:
        client = connect_single(*args, **options)
        client.connection_pool.connection_kwargs["health_check_interval"] = every_s
        return client

    monkeypatch.setattr("tradewind.server.redis.subscriber.connect_single", connect)
    monkeypatch.setattr("tradewind.server.redis.subscriber._POLL_S", poll_s)


class SilentStore:
    """Confirms subscriptions, and answers nothing on their connections afterwards."""

    def __init__(self) -> None:
        self._connections: list[asyncio.StreamWriter] = []

    @asynccontextmanager
    async def subscriber(self) -> AsyncIterator[Subscriber]:
        """Serve, and yield a subscriber that is connected here."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        subscriber = Subscriber(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        subscriber.start()
        try:
            yield subscriber
        finally:
            await subscriber.stop()
            server.close()

    @property
    def connections(self) -> int:
        """How many there have been."""
        return len(self._connections)

    def cut_off(self) -> None:
        """Close the newest connection."""
        self._connections[-1].close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.append(writer)
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


@pytest.mark.parametrize("doubted", [False, True])
async def test_silent_store_is_given_up_and_reconnected(monkeypatch: pytest.MonkeyPatch, doubted: bool) -> None:
    """The store's machine is gone, and nothing is left to close the connection; that is checked at once in doubt."""
    if not doubted:
        check_often(monkeypatch, every_s=0.2, poll_s=0.1)
    monkeypatch.setattr("tradewind.server.redis.subscriber._ANSWER_S", 0.1)
    store, receiver = SilentStore(), Receiver()
    async with store.subscriber() as subscriber:
        await asyncio.wait_for(subscriber.subscribe(CHANNEL, receiver, receiver.on_gap), 10)
        assert store.connections == 1
        if doubted:
            subscriber.doubt()
        await until(lambda: receiver.gaps, "it has connected anew, and reports the gap", timeout=10)
        assert store.connections >= 2


async def test_connection_after_one_that_was_lost_while_in_doubt_is_checked_in_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All connections are lost at once when the store is killed."""
    monkeypatch.setattr("tradewind.server.redis.subscriber._ANSWER_S", 0.1)
    next_message = subscriber_module._next_message
    store, receiver = SilentStore(), Receiver()
    async with store.subscriber() as subscriber:

        async def lose_another_connection_too(pubsub: PubSub) -> Any:
            try:
                return await next_message(pubsub)
            except ConnectionError:
                subscriber.doubt()
                raise

        monkeypatch.setattr(subscriber_module, "_next_message", lose_another_connection_too)
        await asyncio.wait_for(subscriber.subscribe(CHANNEL, receiver, receiver.on_gap), 10)
        store.cut_off()
        await until(lambda: receiver.gaps == 1, "it has connected anew", timeout=10)
        subscriber.doubt()
        await until(lambda: receiver.gaps == 2, "the new connection has been checked and given up", timeout=10)


async def test_connection_in_doubt_is_kept_if_the_store_answers(
    subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = Receiver()
    await subscriber.subscribe(CHANNEL, receiver, receiver.on_gap)
    monkeypatch.setattr("tradewind.server.redis.subscriber._ANSWER_S", 0.5)
    kept = subscriber._pubsub
    subscriber.doubt()
    await until(lambda: not subscriber._doubted, "the connection has been checked")
    await asyncio.sleep(0)
    assert subscriber._pubsub is kept
    assert receiver.gaps == 0


async def test_connection_is_kept_while_the_disk_of_the_store_fails(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store refuses PING, by which the connection is checked."""
    check_often(monkeypatch, every_s=0.1, poll_s=1.5)
    subscriber, receiver = Subscriber(redis_server.url("node_task_manager")), Receiver()
    subscriber.start()
    try:
        await subscriber.subscribe(CHANNEL, receiver, receiver.on_gap)
        async with failing_disk(redis_server):
            pubsub: Any = subscriber._pubsub
            checked_s = pubsub.connection.next_health_check
            await until(
                lambda: receiver.gaps or pubsub.connection.next_health_check > checked_s + 1,
                "the connection has been checked",
            )
        assert receiver.gaps == 0
    finally:
        await subscriber.stop()
