"""A server's process: its signals, exit codes and messages."""

import asyncio
import json
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from google.protobuf.wrappers_pb2 import StringValue

from tests.ports import free_port
from tests.rpc.server.echo_service import EchoClient
from tests.waiting import until
from tradewind.server.bootstrap import Server
from tradewind.server.channels import open_channel
from tradewind.server.probe import probe

Spawn = Callable[..., Awaitable[Process]]


@pytest.fixture
async def spawn() -> AsyncIterator[Spawn]:
    """Start the echo process with these arguments and settings; it is killed at the end if it still runs."""
    started: list[Process] = []

    async def spawn(*arguments: str, **settings: str) -> Process:
        environment = {f"TRADEWIND_{name.upper()}": value for name, value in settings.items()}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.rpc.server.echo_app", *arguments),
            env={**os.environ, "TRADEWIND_LOG_FORMAT": "json", "COLUMNS": "200", **environment},
            stdout=PIPE,
            stderr=PIPE,
        )
        started.append(process)
        return process

    yield spawn
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def serving_address(process: Process) -> str:
    assert process.stderr is not None
    async for line in process.stderr:
        entry = json.loads(line)
        if entry["event"] == "serving":
            return str(entry["address"])
    raise AssertionError("the process ended without serving")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_open_streams_and_exits_with_0(spawn: Spawn, number: signal.Signals) -> None:
    process = await spawn()
    async with open_channel(await serving_address(process)) as channel:
        stream = EchoClient(channel).method("unary_stream", "Wait")(StringValue(value="open"))
        await stream.read()
        started_at = time.monotonic()
        process.send_signal(number)
        output, log = await process.communicate()
    assert process.returncode == 0, log
    assert time.monotonic() - started_at < 5
    assert output == b""
    assert [json.loads(line)["event"] for line in log.splitlines()] == ["stopped"]


async def test_stream_that_does_not_end_delays_exit_by_the_drain_at_most(spawn: Spawn) -> None:
    process = await spawn(fault="stubborn", drain_seconds="0.5")
    async with open_channel(await serving_address(process)) as channel:
        stream = EchoClient(channel).method("unary_stream", "Wait")(StringValue(value="open"))
        await stream.read()
        started_at = time.monotonic()
        process.terminate()
        await process.communicate()
        assert 0.4 < time.monotonic() - started_at < 4
    assert process.returncode == 0


async def test_task_that_ignores_cancellation_is_logged_and_process_exits(spawn: Spawn) -> None:
    process = await spawn(fault="undying", drain_seconds="0.1")
    await serving_address(process)
    process.terminate()
    _, log = await asyncio.wait_for(process.communicate(), timeout=30)
    assert process.returncode == 0
    assert "tasks_did_not_end" in log.decode()
    assert "CancellationIgnoringService._run" in log.decode()


async def test_process_without_standard_streams_serves_and_exits() -> None:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", 'exec "$0" -m tests.rpc.server.echo_app >&- 2>&-', sys.executable),
        env={**os.environ, "TRADEWIND_PORT": str(port), "TRADEWIND_FAULT": "undying", "TRADEWIND_DRAIN_SECONDS": "0.1"},
    )
    try:

        async def ready() -> bool:
            return await probe(f"127.0.0.1:{port}") is None

        await until(ready, "it serves")
        process.terminate()
        assert await asyncio.wait_for(process.wait(), timeout=30) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_second_signal_ends_the_process_at_once(spawn: Spawn) -> None:
    process = await spawn(fault="stubborn", drain_seconds="60")
    async with open_channel(await serving_address(process)) as channel:
        stream = EchoClient(channel).method("unary_stream", "Wait")(StringValue(value="open"))
        await stream.read()
        process.terminate()
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), timeout=30) == 130


async def test_port_in_use_is_reported_in_one_message(spawn: Spawn, server: Server) -> None:
    process = await spawn(port=str(server.port))
    _, log = await process.communicate()
    assert process.returncode == 1
    text = log.decode()
    assert f"port {server.port} is in use by process" in text
    assert "Traceback" not in text


async def test_foreign_address_is_reported_in_one_line(spawn: Spawn) -> None:
    """gRPC has lines of its own for an address that it cannot bind."""
    process = await spawn(host="192.0.2.7")
    _, log = await process.communicate()
    assert process.returncode == 1
    (line,) = log.decode().splitlines()
    assert "it is no address of this machine; give one, or 0.0.0.0 for all of them (set TRADEWIND_HOST" in line


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("start", "the store does not answer: connection refused"),
        ("build", "store URL: a host is missing"),
    ],
)
async def test_fault_at_start_is_reported_in_one_message(spawn: Spawn, fault: str, message: str) -> None:
    process = await spawn(fault=fault, log_format="console")
    _, log = await process.communicate()
    assert process.returncode == 1
    assert log.decode() == f"echo cannot start: {message}\n"


async def test_fault_at_start_is_an_event_where_logs_are_json(spawn: Spawn) -> None:
    process = await spawn(fault="start")
    _, log = await process.communicate()
    assert process.returncode == 1
    (entry,) = map(json.loads, log.splitlines())
    assert (entry["event"], entry["level"], entry["service"]) == ("cannot_start", "error", "echo")
    assert entry["error"] == "the store does not answer: connection refused"


async def test_signal_ends_a_process_that_is_still_starting(spawn: Spawn) -> None:
    process = await spawn(fault="hang")
    assert process.stdout is not None
    assert await process.stdout.readline() == b"starting\n"
    process.terminate()
    _, log = await process.communicate()
    assert process.returncode == 0, log


async def test_all_invalid_settings_are_named(spawn: Spawn) -> None:
    process = await spawn(port="http", log_level="loud")
    _, log = await process.communicate()
    assert process.returncode == 2
    assert {line.partition(":")[0] for line in log.decode().splitlines()} == {
        "invalid settings",
        "TRADEWIND_PORT",
        "TRADEWIND_LOG_LEVEL",
    }


async def test_unknown_argument_points_to_help_settings(spawn: Spawn) -> None:
    process = await spawn("--port", "1")
    _, log = await process.communicate()
    assert process.returncode == 2
    assert log.decode() == "unknown argument --port: settings come from the environment, see --help-settings\n"


async def test_help_settings_prints_the_settings_table(spawn: Spawn) -> None:
    process = await spawn("--help-settings")
    output, log = await process.communicate()
    assert process.returncode == 0
    assert log == b""
    assert "TRADEWIND_FAULT" in output.decode()
    assert "TRADEWIND_STORE_URL" in output.decode()
    assert "redis://127.0.0.1:6379" in output.decode()


async def test_log_line_of_a_call_has_its_trace_id(spawn: Spawn) -> None:
    process = await spawn(log_level="debug")
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    async with open_channel(await serving_address(process)) as channel:
        metadata = (("traceparent", f"00-{trace_id}-b7ad6b7169203331-01"),)
        await EchoClient(channel).call("UnaryUnary", "x", metadata=metadata)
    process.terminate()
    _, log = await process.communicate()
    [call] = [entry for entry in map(json.loads, log.splitlines()) if entry["event"] == "call"]
    assert (call["code"], call["trace_id"]) == ("OK", trace_id)
