"""Fixtures that every test may use: real stores with a fresh key space."""

import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, settings

from tests.certificates import Authority
from tests.servers import REDIS_REQUIRED, SYSTEM_REDIS, RedisServer, RedisServers, redis_kinds
from tradewind.server.logs import quieten_logging


def pytest_configure() -> None:
    """Begin alike wherever the tests run.

    They log as a program does that has not said how; `capture_logs` would count as a choice.
    """
    quieten_logging("warning")
    # How soon examples are made says more about the machine than the code; with CI=1 Hypothesis knows that itself.
    if "CI" not in os.environ:
        settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
        settings.load_profile("patient")
    # Whoever runs the tests in the background has them ignore Ctrl-C, and a process started here would ignore it too.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str:
    """Say once which redis-server the suite runs on besides the embedded store."""
    if SYSTEM_REDIS:
        return f"redis-server on PATH: {SYSTEM_REDIS}"
    return "redis-server on PATH: none" + (", but TRADEWIND_REQUIRE_REDIS=1" if REDIS_REQUIRED else "")


@pytest.fixture(scope="session")
def redis_servers() -> Iterator[RedisServers]:
    """The stores of this test process, each started when first needed."""
    servers = RedisServers()
    yield servers
    servers.stop()


@pytest.fixture(scope="session", params=redis_kinds())
def running_redis(request: pytest.FixtureRequest, redis_servers: RedisServers) -> RedisServer:
    """A store as it is, for what outlives one test (a stateful property test); flush and close clients yourself."""
    return redis_servers.get(request.param)


@pytest_asyncio.fixture
async def redis_server(running_redis: RedisServer) -> AsyncIterator[RedisServer]:
    """A store without keys, once per kind; closes the clients that the test opened with `connect`."""
    await running_redis.flush()
    yield running_redis
    await running_redis.close_clients()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """A CA whose files are in `tmp_path`."""
    return Authority(tmp_path)
