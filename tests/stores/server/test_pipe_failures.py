"""What happens to calls in flight when the store dies, hangs, is demoted or sends nonsense."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import hiredis
import pytest
import pytest_asyncio
from redis.exceptions import ConnectionError as StoreConnectionError
from redis.exceptions import ReadOnlyError
from redis.exceptions import TimeoutError as StoreTimeoutError

from tests.ports import free_port
from tests.waiting import until
from tradewind.server.redis.client import Client, connect
from tradewind.server.redis.embedded import EmbeddedStore
from tradewind.server.redis.piped import PipedRedis
from tradewind.server.redis.script import Script

KEY = "n"

count = Script(__name__, "count", int)


@pytest_asyncio.fixture(params=["tcp", "unix"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    """A store for this test alone, which may be stopped and killed."""
    one = EmbeddedStore(tmp_path, unix_socket=tmp_path / "s" if request.param == "unix" else None)
    await one.start()
    yield one
    await one.stop()


@asynccontextmanager
async def connected(url: str, **options: Any) -> AsyncIterator[Client]:
    """Yield a client that is connected as long as the block runs."""
    client = connect(url, **options)
    try:
        yield client
    finally:
        await client.end()


def start_calls(client: Client, calls: int) -> list[asyncio.Task[int]]:
    """Begin calls of a script that counts."""
    return [asyncio.ensure_future(count(client, [KEY], [1])) for _ in range(calls)]


def send_signal(store: EmbeddedStore, number: signal.Signals) -> None:
    """Stop, continue or kill the store's process."""
    assert store.pid is not None
    os.kill(store.pid, number)


async def test_calls_in_flight_fail_when_the_store_dies_and_later_ones_reconnect(store: EmbeddedStore) -> None:
    losses: list[str] = []
    async with connected(store.url_for()) as client:
        client.losses.listen(lambda: losses.append("lost"))
        assert await count(client, [KEY], [1]) == 1
        send_signal(store, signal.SIGSTOP)
        calls = start_calls(client, 30)
        await asyncio.sleep(0)
        send_signal(store, signal.SIGKILL)
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(end) for end in ends] == [StoreConnectionError] * 30
        assert losses == ["lost"]
        await until(lambda: store.pid is None, "the store is dead")
        with pytest.raises(StoreConnectionError, match=r"Error .* connecting to"):
            await count(client, [KEY], [1])
        await store.stop()
        await store.start()
        # The store may have been killed before the first run reached its file.
        assert await count(client, [KEY], [1]) in (1, 2)


async def test_calls_to_a_hanging_store_time_out_and_run_at_most_once(store: EmbeddedStore) -> None:
    async with connected(store.url_for(), socket_timeout_s=0.3, connect_timeout_s=0.3) as client:
        await wait_until_it_answers(client)
        send_signal(store, signal.SIGSTOP)
        try:
            started_at = time.monotonic()
            ends = await asyncio.gather(*start_calls(client, 20), return_exceptions=True)
            assert [type(end) for end in ends] == [StoreTimeoutError] * 20
            # The upper bound is below the time that a client waits by default.
            assert 0.25 < time.monotonic() - started_at < 4
            # There is no connection left, and none can be made; with a socket redis-py calls that a lost connection.
            started_at = time.monotonic()
            ends = await asyncio.gather(*start_calls(client, 20), return_exceptions=True)
            assert all(isinstance(end, StoreTimeoutError | StoreConnectionError) for end in ends), ends
            assert 0.25 < time.monotonic() - started_at < 4
        finally:
            send_signal(store, signal.SIGCONT)
        await wait_until_it_answers(client)
        # The first calls were sent, the second ones never were.
        async with connected(store.url_for()) as patient:
            assert 1 <= int(await patient.get(KEY) or 0) <= 20


async def wait_until_it_answers(client: Client) -> None:
    """Wait until a script runs again, once the store has worked off its backlog."""

    async def answered() -> bool:
        try:
            return await count(client, [KEY], [0]) >= 0
        except (StoreTimeoutError, StoreConnectionError):
            return False

    await until(answered, "the store answers again")


async def test_each_call_has_its_own_timeout(store: EmbeddedStore) -> None:
    async with connected(store.url_for(), socket_timeout_s=2.0) as client:
        started_at = time.monotonic()
        while time.monotonic() - started_at < 1.6:
            await count(client, [KEY], [1])
        send_signal(store, signal.SIGSTOP)
        asyncio.get_running_loop().call_later(0.6, send_signal, store, signal.SIGCONT)
        assert await count(client, [KEY], [1]) > 1
        assert time.monotonic() - started_at > 2.0


async def test_closing_a_client_fails_calls_in_flight(store: EmbeddedStore) -> None:
    client = connect(store.url_for())
    await count(client, [KEY], [1])
    send_signal(store, signal.SIGSTOP)
    try:
        calls = start_calls(client, 3)
        await asyncio.sleep(0)
        await client.end()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        # These calls wait for a connection.
        calls = start_calls(client, 3)
        await asyncio.sleep(0)
        await client.end()
        ends += await asyncio.gather(*calls, return_exceptions=True)
    finally:
        send_signal(store, signal.SIGCONT)
    assert [type(end) for end in ends] == [StoreConnectionError] * 6
    assert {str(end) for end in ends} == {"the client was closed"}


async def test_cancelled_first_caller_does_not_affect_others_who_wait_to_connect(store: EmbeddedStore) -> None:
    async with connected(store.url_for()) as client:
        calls = start_calls(client, 10)
        await asyncio.sleep(0)
        calls[0].cancel()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(ends[0], asyncio.CancelledError)
        assert sorted(end for end in ends if isinstance(end, int)) == list(range(1, 10))


async def test_connection_to_a_demoted_master_is_closed(store: EmbeddedStore) -> None:
    async with connected(store.url_for()) as client, connected(store.url_for()) as admin:
        await count(client, [KEY], [1])
        await admin.execute_command("REPLICAOF", "127.0.0.1", free_port())
        before = await script_connections(admin)
        with pytest.raises(ReadOnlyError):
            await count(client, [KEY], [1])
        with pytest.raises(ReadOnlyError):
            await count(client, [KEY], [1])
        assert not before & await script_connections(admin)
        await admin.execute_command("REPLICAOF", "NO", "ONE")
        assert await count(client, [KEY], [1]) == 2


async def test_calls_in_flight_get_their_own_replies_from_a_demoted_master(store: EmbeddedStore) -> None:
    losses: list[str] = []
    async with connected(store.url_for()) as client, connected(store.url_for()) as admin:
        client.losses.listen(lambda: losses.append("lost"))
        await count(client, [KEY], [1])
        await admin.execute_command("REPLICAOF", "127.0.0.1", free_port())
        writes = start_calls(client, 2)
        reads = [asyncio.ensure_future(client.call(KEY, "GET", KEY)) for _ in range(2)]
        ends = await asyncio.gather(*writes, *reads, return_exceptions=True)
        assert [type(end) for end in ends[:2]] == [ReadOnlyError] * 2
        assert ends[2:] == [b"1"] * 2
        assert losses == ["lost"]
        assert await client.call(KEY, "GET", KEY) == b"1"


async def test_read_is_sent_though_a_write_beside_it_has_just_made_the_client_leave(store: EmbeddedStore) -> None:
    """The new connection may be left between the moment when it is made and the one when the read learns of it."""
    async with connected(store.url_for()) as client, connected(store.url_for()) as admin:
        await admin.execute_command("REPLICAOF", "127.0.0.1", free_port())
        read = asyncio.ensure_future(client.call(KEY, "EXISTS", KEY))
        reconnecting = cast(PipedRedis, client)._pipe
        while reconnecting._pipe is None:
            await asyncio.sleep(0)
        write = asyncio.ensure_future(client.call(KEY, "SET", KEY, "1"))
        reconnecting._pipe.leave()
        assert await read == 0
        with pytest.raises(ReadOnlyError):
            await write


async def script_connections(admin: Client) -> set[str]:
    """Return the ids of the connections whose last command was a script."""
    listed: str = (await admin.execute_command("CLIENT", "LIST")).decode()
    return {line.split()[0] for line in listed.splitlines() if " cmd=fcall " in line}


Answer = Callable[[asyncio.StreamWriter, int], None]


@asynccontextmanager
async def fake_store(answer: Answer) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Run a server that answers everything with OK, but leaves the n-th script to `answer`.

    Yields its URL and what it has seen: `connected`, and the last argument of every script.
    """
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(b"connected")
        parser = hiredis.Reader()
        while data := await reader.read(65536):
            parser.feed(data)
            while (command := parser.gets()) is not False:
                if command[0] == b"FCALL":
                    seen.append(command[-1])
                    answer(writer, len(seen) - seen.count(b"connected"))
                else:
                    writer.write(b"+PONG\r\n" if command[0] == b"PING" else b"+OK\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}", seen


def hang_up(writer: asyncio.StreamWriter, number: int) -> None:
    """Close the connection instead of answering the first script."""
    if number == 1:
        writer.close()
    else:
        writer.write(b":7\r\n")


def reply_twice(writer: asyncio.StreamWriter, number: int) -> None:
    """Answer the first script twice."""
    writer.write(b":5\r\n:6\r\n" if number == 1 else b":7\r\n")


def reply_with_nonsense(writer: asyncio.StreamWriter, number: int) -> None:
    """Answer the second script with something that is not a reply."""
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" if number == 2 else b":7\r\n")


async def test_a_script_whose_reply_is_lost_is_not_sent_again() -> None:
    async with fake_store(hang_up) as (url, seen), connected(url) as client:
        with pytest.raises(StoreConnectionError, match="the store has closed the connection"):
            await client.fcall("sha", 1, KEY, b"first")
        assert seen == [b"connected", b"first"]
        assert await client.fcall("sha", 1, KEY, b"second") == 7
        assert seen == [b"connected", b"first", b"connected", b"second"]


async def test_surplus_reply_is_ignored_and_closes_the_connection() -> None:
    async with fake_store(reply_twice) as (url, seen), connected(url) as client:
        assert await client.fcall("sha", 1, KEY, b"first") == 5
        assert await client.fcall("sha", 1, KEY, b"second") == 7
        assert seen == [b"connected", b"first", b"connected", b"second"]


async def test_invalid_reply_closes_the_connection() -> None:
    async with fake_store(reply_with_nonsense) as (url, seen), connected(url) as client:
        assert await client.fcall("sha", 1, KEY, b"first") == 7
        with pytest.raises(StoreConnectionError, match="cannot read what the store sent"):
            await client.fcall("sha", 1, KEY, b"second")
        assert await client.fcall("sha", 1, KEY, b"third") == 7
        assert seen == [b"connected", b"first", b"second", b"connected", b"third"]
