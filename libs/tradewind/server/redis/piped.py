"""redis-py clients that run known scripts, and commands given to `call`, through a pipe; all else goes as usual."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

from redis import asyncio as aioredis
from redis.asyncio.cluster import ClusterNode
from redis.cluster import PRIMARY
from redis.exceptions import (
    AskError,
    ClusterDownError,
    ConnectionError,
    RedisClusterException,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from tradewind.server.redis.connections import Lifetime, StoreConnection, connection_class
from tradewind.server.redis.pipe import ReconnectingPipe
from tradewind.server.redis.shared_attempt import SharedAttempt


class Losses:
    """Called whenever a pipe is lost; calls its listeners, which must not block."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` at each loss."""
        self._listeners.append(listener)

    def __call__(self) -> None:
        for listener in self._listeners:
            listener()


class PipedRedis(aioredis.Redis):
    """A client of one server, or of the one that Sentinel names; has one connection more than its pool."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        settings = self.connection_pool.connection_kwargs
        self._lifetime = settings["lifetime"] = Lifetime()
        self.password: str = settings.get("password") or ""
        self.losses = Losses()
        self._pipe = ReconnectingPipe(
            self.connection_pool.make_connection,
            settings["socket_timeout"],
            settings["socket_connect_timeout"],
            self.losses,
        )

    def fcall(self, function: str, numkeys: int, *keys_and_args: Any) -> Awaitable[Any]:
        """Run a function that the server knows; raises as redis-py does."""
        return self._pipe.call("FCALL", function, numkeys, *keys_and_args)

    async def load_functions(self, library: str) -> None:
        """Make functions known to the server unless it knows them; raises as redis-py does."""
        await _load(self._pipe, library)

    def call(self, _key: str, *command: Any) -> Awaitable[Any]:
        """Run a command; raises as redis-py does."""
        return self._pipe.call(*command)

    def exists(self, *names: Any) -> Awaitable[Any]:
        """Return how many of these keys exist; raises as redis-py does."""
        return self._pipe.call("EXISTS", *names)

    async def follow_master(self) -> tuple[str, int]:
        """Leave a server that Sentinel does not name as the master, and return host and port of the one that it names.

        Only for a client that asks Sentinel. Raises as redis-py does.
        """
        pool: Any = self.connection_pool
        master: tuple[str, int] = await pool.get_master_address()
        self._pipe.leave_unless_at(master)
        return master

    async def end(self) -> None:
        """Close every connection for good."""
        self._lifetime.end()
        await self._pipe.aclose()
        await self.aclose()


class _LastReleasedFirst(deque[Any]):
    """Free connections of a node, of which redis-py takes the one that it released last."""

    popleft = deque.pop


class PipedCluster(aioredis.RedisCluster):
    """A cluster client whose callers wait their turn, and that closes every connection it opened.

    It has a pipe to each master. A command that a master refuses because another one has the slot, or because the slot
    is moving, has not run: redis-py sends it anew, follows the redirection and remembers it.
    """

    def __init__(self, *, max_connections: int, **options: Any) -> None:
        # Pipelines take connections without execute_command, hence room for as many again. One redirection teaches who
        # owns the slot; after several, redis-py would close every connection, even with calls in flight, to learn more.
        super().__init__(max_connections=2 * max_connections, reinitialize_steps=0, **options)
        self.password: str = options.get("password") or ""
        self.connection_kwargs["connection_class"] = connection_class("cluster", bool(options.get("ssl")))
        self._lifetime = self.connection_kwargs["lifetime"] = Lifetime()
        for node in self.nodes_manager.startup_nodes.values():
            node.connection_class = self.connection_kwargs["connection_class"]
            node.connection_kwargs["lifetime"] = self._lifetime
        self._slots = asyncio.Semaphore(max_connections)
        self.losses = Losses()
        self._pipes: dict[str, ReconnectingPipe] = {}
        self._looking = SharedAttempt(self._look_for_masters)

    async def initialize(self, *_args: Any, **_options: Any) -> "PipedCluster":
        """Look for the masters, unless they are known; all calls share one attempt, and its error."""
        if self._initialize:
            # If the first caller made it alone, its end would close the connections of all.
            await self._looking()
        return self

    async def _look_for_masters(self) -> None:
        # redis-py keeps the node that failed last at the end; if that one hangs, others answer at once.
        failed_last = next(reversed(self.nodes_manager.startup_nodes))
        _ = await super().initialize(last_failed_node_name=failed_last)

    async def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        async with self._slots:
            self._lifetime.require_open()
            if self._initialize:
                # By itself, redis-py sends its first commands to any master, and is redirected.
                _ = await self.initialize()
            return await super().execute_command(*args, **kwargs)

    def get_node(
        self, host: str | None = None, port: int | None = None, node_name: str | None = None
    ) -> ClusterNode | None:
        node = super().get_node(host, port, node_name)
        if node_name is not None:
            # Here a slot is moving, as the first one of a new master: redis-py knows masters only by their slots.
            if node is None:
                new_host, _, new_port = node_name.rpartition(":")
                node = ClusterNode(new_host, int(new_port), PRIMARY, **self.connection_kwargs)
                self.nodes_manager.set_nodes(self.nodes_manager.nodes_cache, {node_name: node})
            # redis-py sends ASKING by itself, but it holds for the next command of the same connection.
            if not isinstance(node._free, _LastReleasedFirst):
                node._free = _LastReleasedFirst(node._free, node._free.maxlen)
        return node

    def fcall(self, function: str, numkeys: int, *keys_and_args: Any) -> Awaitable[Any]:
        """Run a function that the server knows; raises as redis-py does."""
        command = ("FCALL", function, numkeys, *keys_and_args)
        return self.call(keys_and_args[0], *command) if numkeys else self.execute_command(*command)

    async def load_functions(self, library: str) -> BaseException | None:
        """Load functions into every master; one that cannot take them now gets them later. Raises when none took them.

        Returns the error of one that did not take them, if any.
        """
        if self._initialize:
            _ = await self.initialize()
        loads = [_load(self._pipe_to(node), library) for node in self.get_primaries()]
        if not loads:
            raise RedisClusterException("the cluster names no master")
        ends = await asyncio.gather(*loads, return_exceptions=True)
        errors = [end for end in ends if end is not None]
        if len(errors) == len(ends):
            raise errors[0]
        return errors[0] if errors else None

    async def call(self, key: str, *command: Any) -> Any:
        """Run a command about `key`, and other keys in its slot; raises as redis-py does."""
        self._lifetime.require_open()
        if self._initialize:
            _ = await self.initialize()
        node = self.nodes_manager.get_node_from_slot(self.keyslot(key))
        try:
            return await self._pipe_to(node).call(*command)
        except (AskError, TryAgainError):
            pass
        except (ClusterDownError, ConnectionError, TimeoutError):
            # It may have run, so it is not sent again; but another server may be master by now.
            self._initialize = True
            self.nodes_manager.move_node_to_end_of_cached_nodes(node.name)
            raise
        return await self.execute_command(*command)

    async def end(self) -> None:
        """Close every connection for good; redis-py calls `aclose` to look for the masters anew."""
        self._lifetime.end()
        await self._looking.aclose()
        pipes, self._pipes = self._pipes, {}
        for pipe in pipes.values():
            await pipe.aclose()
        await self.aclose()
        # After a failed command, the stock client counts as not connected and would leave its connections open.
        await self.nodes_manager.aclose()
        await self.nodes_manager.aclose("startup_nodes")

    def _pipe_to(self, node: ClusterNode) -> ReconnectingPipe:
        pipe = self._pipes.get(node.name)
        if pipe is None:
            settings = node.connection_kwargs
            connection = partial(cast(type[StoreConnection], node.connection_class), **settings)
            pipe = ReconnectingPipe(
                connection, settings["socket_timeout"], settings["socket_connect_timeout"], self.losses
            )
            self._pipes[node.name] = pipe
        return pipe


async def _load(pipe: ReconnectingPipe, library: str) -> None:
    try:
        await pipe.call("FUNCTION", "LOAD", library)
    except ResponseError as error:
        if "already exists" not in str(error):
            raise
