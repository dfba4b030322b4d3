"""Fixtures that every test may use: real stores with a fresh key space."""

import gc
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
import structlog
from hypothesis import HealthCheck, settings

from tests.certificates import Authority
from tests.servers import REDIS_REQUIRED, SYSTEM_REDIS, RedisServer, RedisServers, redis_kinds
from tradewind.server.logs import quieten_logging
from tradewind.tls import channels


def pytest_configure() -> None:
    """Set up the same conditions wherever the tests run.

    The tests log as a program that has not configured logging does; `capture_logs` would count as a configuration.
    """
    quieten_logging("warning")
    # As servers do (`tradewind.server.process`): Python's own threshold of 700 costs a sixth of the time of the tests.
    gc.set_threshold(7_000, 10, 10)
    # Channels of one process share what they know of a port: one that leads to a server which is gone would have a new
    # server at the same port taken for gone as well.
    channels._EVERY_CHANNEL = (*channels._EVERY_CHANNEL, ("grpc.use_local_subchannel_pool", 1))
    # How fast examples are generated depends on the machine more than on the code. With CI=1 Hypothesis knows that.
    if "CI" not in os.environ:
        settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
        settings.load_profile("patient")
    # A shell that runs the tests in the background makes them ignore Ctrl-C; processes started here would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Spare the collector the thousands of tests, which stay to the end."""
    gc.freeze()


def pytest_report_header() -> str:
    """Report once on which redis-server the suite runs besides the embedded store."""
    if SYSTEM_REDIS:
        return f"redis-server on PATH: {SYSTEM_REDIS}"
    return "redis-server on PATH: none" + (", but TRADEWIND_REQUIRE_REDIS=1" if REDIS_REQUIRED else "")


@pytest.fixture(scope="session")
def redis_servers() -> Iterator[RedisServers]:
    """The stores of this test process, each started when it is first needed."""
    servers = RedisServers()
    yield servers
    servers.stop()


@pytest.fixture(scope="session")
def embedded(redis_servers: RedisServers) -> RedisServer:
    """The embedded store as it is; flush it and close clients yourself."""
    return redis_servers.get("embedded")


@pytest.fixture(scope="session", params=redis_kinds())
def running_redis(request: pytest.FixtureRequest, redis_servers: RedisServers) -> RedisServer:
    """A store as it is, for tests that share it (stateful property tests); flush it and close clients yourself."""
    return redis_servers.get(request.param)


@pytest_asyncio.fixture
async def redis_server(running_redis: RedisServer) -> AsyncIterator[RedisServer]:
    """A store without keys, once per kind of store; closes the clients that the test opened with `connect`."""
    await running_redis.flush()
    yield running_redis
    await running_redis.close_clients()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """A CA whose files are in `tmp_path`."""
    return Authority(tmp_path)


@pytest.fixture
def debug_logging() -> Iterator[None]:
    """Let everything be logged, for `capture_logs`."""
    config = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("debug"))
    yield
    structlog.configure(**config)
