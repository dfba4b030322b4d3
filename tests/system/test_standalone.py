"""`Standalone`: all services in this process."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest
import redis

from benchmarks.soak.crowd import open_crowd
from tests.ports import free_port
from tests.system import flows
from tests.waiting import until
from tradewind.client import Client, Unreachable
from tradewind.scheduler.app import Scheduler
from tradewind.server.listening import listen_error, port_holder
from tradewind.server.redis.backup import STACK
from tradewind.server.redis.client import connect
from tradewind.standalone import Standalone, StandaloneError
from tradewind.standalone.process import welcome
from tradewind.worker import Worker


async def test_each_service_logs_in_as_its_own_user(stack: Standalone, client: Client) -> None:
    await client.register_flow("sums", flows.sums())
    await (await client.run_flow("sums")).result(30)
    assert stack._store is not None
    admin = connect(stack._store.url_for())
    try:
        listed = (await admin.execute_command("CLIENT", "LIST")).decode().splitlines()
    finally:
        await admin.end()

    users = {field.removeprefix("user=") for line in listed for field in line.split() if field.startswith("user=")}
    assert users == {"admin", "node_task_manager", "registry", "scheduler", "trigger"}


async def test_killed_store_is_restarted(stack: Standalone, client: Client) -> None:
    assert stack._store is not None
    admin = connect(stack._store.url_for())
    try:
        # As NEVER_HELD_BACK.
        await admin.execute_command("CONFIG", "SET", "appendfsync", "no")
    finally:
        await admin.end()
    await client.register_flow("sums", flows.sums())
    killed = stack.store_pid
    assert killed is not None

    os.kill(killed, signal.SIGKILL)
    await until(lambda: stack.store_pid not in (None, killed), "the store is back")

    run = await client.run_flow("sums")
    assert await run.result(30) == {"sort": {"even": 10}, "alone": {"numbers": [7, 8, 9]}}


async def test_stack_can_be_restarted_over_the_same_data(tmp_path: Path) -> None:
    port = free_port()
    for expected in (None, 0):
        async with Standalone(data=tmp_path, port=port) as stack, Client(stack.address) as client:
            if expected is None:
                await client.register_flow("sums", flows.sums())
                await client.run_flow("sums")
            assert (await client.get_flow("sums")).flow.last_cycle == 0
    async with Client(f"127.0.0.1:{port}", patience=0) as client:
        with pytest.raises(Unreachable):
            await client.get_flow("sums")


async def test_stop_takes_bounded_time_and_can_be_repeated(stack: Standalone, worker: Worker) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()

    await stack.stop()

    assert loop.time() - begun < 5
    await stack.stop()


async def test_shard_count_is_fixed_with_the_data(tmp_path: Path) -> None:
    async with Standalone(data=tmp_path, port=0, node_task_manager_shards=3):
        pass
    with pytest.raises(StandaloneError, match="has 3 shards of node tasks, not 2: leave the number out"):
        await Standalone(data=tmp_path, port=0, node_task_manager_shards=2).start()
    async with Standalone(data=tmp_path, port=0) as stack, Client(stack.address) as client:
        await client.wait_ready()


async def test_data_of_a_restored_snapshot_start_once_their_shard_count_is_given(tmp_path: Path) -> None:
    async with Standalone(data=tmp_path, port=0, node_task_manager_shards=3):
        pass
    (tmp_path / STACK).unlink()
    with pytest.raises(StandaloneError, match=r"have 3 shards, but this server is set to 1 by TRADEWIND_\w+_SHARDS"):
        await Standalone(data=tmp_path, port=0).start()
    for shards in (3, None):
        async with Standalone(data=tmp_path, port=0, node_task_manager_shards=shards):
            pass


async def test_unreadable_shard_count_is_reported(tmp_path: Path) -> None:
    (tmp_path / "stack.json").write_text("{}")
    with pytest.raises(
        StandaloneError, match=r"stack\.json does not say how many shards .* the number of shards that the data has"
    ):
        await Standalone(data=tmp_path, port=0).start()


async def test_data_directory_that_cannot_be_used_is_named_without_error_numbers(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StandaloneError, match=rf"^cannot use {tmp_path}/file: File exists$"):
        await Standalone(data=tmp_path / "file", port=0).start()


async def test_stack_uses_given_store_instead_of_its_own(stack: Standalone, tmp_path: Path) -> None:
    assert stack._store is not None
    await stack.stop()
    await stack._store.start()
    try:
        other = Standalone(data=tmp_path / "unused", port=0, store_url=stack._store.url_for())
        async with other, Client(other.address) as client:
            await client.register_flow("sums", flows.sums())
        assert not (tmp_path / "unused").exists()
    finally:
        await stack._store.stop()


async def test_unreachable_store_and_invalid_store_url_fail_start(tmp_path: Path) -> None:
    with pytest.raises(StandaloneError, match="the store does not answer"):
        await Standalone(port=0, store_url=f"redis://127.0.0.1:{free_port()}").start()
    with pytest.raises(StandaloneError, match='unknown scheme "http"'):
        await Standalone(port=0, store_url="http://here").start()


async def test_store_lost_during_start_is_reported(
    stack: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, has_flows = stack._store, Scheduler.has_flows
    assert store is not None
    await stack.stop()
    await store.start()

    async def has_flows_without_store(scheduler: Scheduler) -> bool:
        await store.stop()
        # A connection that is still open says something else until the end of it has arrived.
        with contextlib.suppress(redis.ConnectionError):
            await has_flows(scheduler)
        return await has_flows(scheduler)

    monkeypatch.setattr(Scheduler, "has_flows", has_flows_without_store)
    other = Standalone(data=tmp_path / "unused", port=0, store_url=store.url_for())
    with pytest.raises(StandaloneError, match="the store failed while the stack was starting: Error"):
        await other.start()
    with pytest.raises(RuntimeError, match="not been started"):
        _ = other.address


async def test_unwritable_data_directory_fails_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StandaloneError, match="file/data"):
        await Standalone(data=tmp_path / "file" / "data", port=0).start()


@pytest.mark.parametrize(
    ("variable", "value"), [("ACCESS_ADDRESS", "localhost:7705"), ("QUOTAS", "RunFlow=3"), ("TLS_ROLES", "a=worker")]
)
async def test_start_fails_if_settings_need_access_but_auth_is_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(f"TRADEWIND_{variable}", value)
    with pytest.raises(StandaloneError, match=f"TRADEWIND_{variable} .*TRADEWIND_AUTH"):
        await Standalone(data=tmp_path, port=0).start()


@pytest.mark.parametrize(("limit", "farewell"), [("AGE", b"max_age"), ("IDLE", b"connection idle")])
async def test_connections_last_no_longer_than_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, farewell: bytes
) -> None:
    monkeypatch.setenv(f"TRADEWIND_MAX_CONNECTION_{limit}_SECONDS", "0.2")
    async with Standalone(data=tmp_path, port=0) as stack:
        host, _, port = stack.address.partition(":")
        (connection,) = await open_crowd(host, int(port), 1)
        await until(lambda: connection.farewell, "the server says farewell")
        connection.close()
    assert connection.farewell == farewell


async def test_listen_error_names_process_that_holds_the_port(stack: Standalone) -> None:
    port = int(stack.address.rpartition(":")[2])

    assert port_holder(port).startswith(f"process {os.getpid()} (")
    assert f"port {port} is in use by process {os.getpid()} (" in (listen_error("127.0.0.1", port) or "")
    assert listen_error("127.0.0.1", 0) is None
    assert listen_error("127.0.0.1", free_port()) is None
    for host, other in (("no-such-host.invalid", 7700), ("192.0.2.7", 0)):
        assert listen_error(host, other) == (
            f'cannot listen on "{host}": it is no address of this machine; give one, or 0.0.0.0 for all of them'
        )
    assert port_holder(free_port()) == "another process"


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.2", "127.0.0.2"), ("::1", "[::1]")])
async def test_welcome_names_the_address_that_was_asked_for(tmp_path: Path, host: str, shown: str) -> None:
    if listen_error(host, 0) is not None:
        pytest.skip(f"this machine has no {host}")
    async with Standalone(tmp_path, host=host, port=0) as stack:
        text = welcome(stack)
        assert stack.address.startswith(f"{shown}:")
        assert f"is up at {stack.address}, " in text
        assert f"  export TRADEWIND_ADDRESS={stack.address}\n" in text
        assert text.endswith(f"grpcurl -plaintext {stack.address} list")
