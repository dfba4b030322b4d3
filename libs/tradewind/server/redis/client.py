"""The only place that builds a Redis client, and the narrow interface that stores are written against."""

from collections.abc import Awaitable, Coroutine, Mapping
from typing import Any, Protocol, TypeAlias, cast

from redis import asyncio as aioredis
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.driver_info import DriverInfo
from redis.exceptions import RedisClusterException, RedisError

from tradewind.server.redis.address import StoreAddress
from tradewind.server.redis.connections import connection_class
from tradewind.server.redis.piped import Losses, PipedCluster, PipedRedis
from tradewind.server.redis.shared_attempt import SharedAttempt
from tradewind.tls import SYSTEM, TlsFiles

REDIS_ERRORS = (RedisError, RedisClusterException)
"""What redis-py raises: the second is no RedisError, and comes when no node of a cluster answers."""

# Without it, redis-py looks up its version among the installed packages for each connection: 0.4 ms of CPU.
_DRIVER = DriverInfo()

Value: TypeAlias = str | bytes | int | float


class Pipeline(Protocol):
    """Commands that are sent together; the calls return at once, and `execute` returns all results in order."""

    def execute_command(self, *args: Value) -> object: ...

    def get(self, name: str, /) -> object: ...

    def hget(self, name: str, key: str, /) -> object: ...

    def hgetall(self, name: str, /) -> object: ...

    def hmget(self, name: str, keys: list[str], /) -> object: ...

    def execute(self) -> Awaitable[list[Any]]: ...


class Client(Protocol):
    """The part of a Redis or Redis Cluster client that Tradewind uses; texts come back as bytes."""

    password: str
    """The password it logs in with; empty for none."""

    losses: Losses
    """Calls its listeners when a connection that runs scripts is lost: the store may come back with less data."""

    def end(self) -> Awaitable[None]:
        """Close every connection for good: current and later calls fail with ConnectionError."""
        ...

    def ping(self) -> Awaitable[Any]: ...

    def info(self, section: str, /) -> Awaitable[Mapping[str, Any]]: ...

    def execute_command(self, *args: Value) -> Awaitable[Any]: ...

    def call(self, key: str, /, *command: Value) -> Awaitable[Any]:
        """Run a command about `key`, and other keys in its slot, at a fraction of redis-py's cost.

        The reply is as the server gives it (RESP2); after a redirection in a cluster, as `execute_command` gives it.
        """
        ...

    def pipeline(self, *, transaction: bool = ...) -> Pipeline: ...

    def eval(self, script: str, numkeys: int, /, *keys_and_args: Value) -> Awaitable[Any]: ...

    def fcall(self, function: str, numkeys: int, /, *keys_and_args: Value) -> Awaitable[Any]: ...

    def load_functions(self, library: str, /) -> Coroutine[Any, Any, BaseException | None]:
        """Make functions known to the server, or to every master of a cluster; return the error of one that failed."""
        ...

    def exists(self, /, *names: str) -> Awaitable[int]: ...

    def delete(self, /, *names: str) -> Awaitable[int]: ...

    def expire(self, name: str, time: int, /) -> Awaitable[Any]: ...

    def pttl(self, name: str, /) -> Awaitable[int]: ...

    def publish(self, channel: str, message: Value, /) -> Awaitable[int]: ...

    def get(self, name: str, /) -> Awaitable[bytes | None]: ...

    def set(self, name: str, value: Value, /, *, px: int | None = None, nx: bool = False) -> Awaitable[Any]: ...

    def hget(self, name: str, key: str, /) -> Awaitable[bytes | None]: ...

    def hmget(self, name: str, keys: list[str], /) -> Awaitable[list[bytes | None]]: ...

    def hgetall(self, name: str, /) -> Awaitable[dict[bytes, bytes]]: ...

    def hset(self, name: str, /, *, mapping: Mapping[str, Value]) -> Awaitable[int]: ...

    def lrange(self, name: str, start: int, end: int, /) -> Awaitable[list[bytes]]: ...

    def zcard(self, name: str, /) -> Awaitable[int]: ...

    def zrange(self, name: str, start: int, end: int, /) -> Awaitable[list[Any]]: ...


class _BlockingSentinelPool(SentinelConnectionPool, aioredis.BlockingConnectionPool):
    """A Sentinel pool whose callers wait for a connection instead of failing when all are in use.

    They share one question to the Sentinels: two at once would make redis-py forget a Sentinel that does not answer.
    """

    def __init__(self, service: str, sentinel: Sentinel, **options: Any) -> None:
        super().__init__(service, sentinel, **options)  # type: ignore[no-untyped-call]
        self._sentinel = sentinel
        self._asking: SharedAttempt[tuple[str, int]] = SharedAttempt(super().get_master_address)

    async def get_master_address(self) -> tuple[str, int]:
        return await self._asking()

    async def aclose(self) -> None:
        await self._asking.aclose()
        await super().aclose()
        await self._sentinel.aclose()


def connect(
    url: str,
    *,
    user: str | None = None,
    password: str | None = None,
    max_connections: int = 16,
    socket_timeout_s: float = 5.0,
    connect_timeout_s: float = 2.0,
    tls: TlsFiles | None = None,
) -> Client:
    """Return a client for `url`; it connects at its first call.

    `url` is one of `redis://host:port`, `rediss://...`, `unix:///path`, `redis+sentinel://h1:p,h2:p/<service>` and
    `redis+cluster://h1:p,h2:p`, each with optional `user:password@`, which `user` and `password` override. A command
    is sent once and never repeated: a script that was merely slow must not run twice, so retrying is left to callers
    who know what is idempotent.

    `tls` are the certificates for `rediss://`; without them, this machine's CAs are trusted. They are read whenever a
    connection is opened.

    Raises ValueError when the URL has none of these forms, TlsError (a ValueError) when the files are not good now.
    """
    address = StoreAddress.parse(url)
    if address.tls and tls is not None:
        tls.read()
    options = _options(address, user, password, socket_timeout_s, connect_timeout_s, tls)
    options["max_connections"] = max_connections
    if address.kind == "cluster":
        nodes = [ClusterNode(host, port) for host, port in address.hosts]
        return cast(Client, PipedCluster(startup_nodes=nodes, ssl=address.tls, **options))
    options["timeout"] = connect_timeout_s + socket_timeout_s
    return cast(Client, PipedRedis.from_pool(_pool(address, 0, options)))


def connect_single(
    url: str, *, user: str | None = None, password: str | None = None, tls: TlsFiles | None = None, node_index: int = 0
) -> PipedRedis:
    """Return a client of one server, for pub/sub; in a cluster, of node number `node_index` in the URL.

    TLS files are checked only by its connections: a bad file is an OSError when a connection is opened.
    """
    address = StoreAddress.parse(url)
    options = _options(address, user, password, 5.0, 2.0, tls)
    options |= {"max_connections": 2, "timeout": 2.0}
    return cast(PipedRedis, PipedRedis.from_pool(_pool(address, node_index, options)))


def _options(
    address: StoreAddress,
    user: str | None,
    password: str | None,
    socket_timeout_s: float,
    connect_timeout_s: float,
    tls: TlsFiles | None,
) -> dict[str, Any]:
    options: dict[str, Any] = {
        "username": user or address.user,
        "password": password or address.password,
        "decode_responses": False,
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": socket_timeout_s,
        "socket_connect_timeout": connect_timeout_s,
        "health_check_interval": 30,
        "driver_info": _DRIVER,
    }
    if address.kind != "unix":
        options["socket_keepalive"] = True
    return options | _tls_options(address, tls)


def _tls_options(address: StoreAddress, tls: TlsFiles | None) -> dict[str, Any]:
    if not address.tls or tls is None:
        return {}
    named = {"ssl_ca_certs": tls.ca if tls.ca != SYSTEM else None, "ssl_certfile": tls.cert, "ssl_keyfile": tls.key}
    return {option: str(path) for option, path in named.items() if path}


def _pool(address: StoreAddress, node_index: int, options: dict[str, Any]) -> aioredis.ConnectionPool:
    options = {**options, "connection_class": connection_class(address.kind, address.tls)}
    if address.kind == "unix":
        return aioredis.BlockingConnectionPool(path=address.path, db=address.db, **options)
    if address.kind == "sentinel":
        sentinel = Sentinel(  # type: ignore[no-untyped-call]
            address.hosts,
            sentinel_kwargs={
                "socket_timeout": options["socket_connect_timeout"],
                "socket_keepalive": True,
                "protocol": 2,
                "retry": Retry(NoBackoff(), 0),
                **({"ssl": True} if address.tls else {}),
                **{option: value for option, value in options.items() if option.startswith("ssl_")},
            },
        )
        return _BlockingSentinelPool(address.service, sentinel, db=address.db, **options)
    host, port = address.hosts[node_index % len(address.hosts)]
    return aioredis.BlockingConnectionPool(host=host, port=port, db=address.db, **options)
