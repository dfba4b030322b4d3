"""One connection with many commands in flight at once, each at a fraction of redis-py's cost."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from hiredis import Reader, pack_command
from redis.exceptions import ConnectionError, InvalidResponse, ReadOnlyError, RedisError
from redis.exceptions import TimeoutError as StoreTimeoutError

from tradewind.server.redis.connections import StoreConnection
from tradewind.server.redis.shared_attempt import SharedAttempt

Argument: TypeAlias = str | bytes | int | float

_INCOMPLETE = object()


class Pipe(asyncio.Protocol):
    """A connection that redis-py opened, driven without it; commands go out as they come.

    Replies match commands only by order, so each command keeps its place until its reply is read, whether or not its
    caller still waits, and anything that breaks the order (a reply that is unreadable or unrequested) ends the
    connection. Every command is sent once, and its caller gets its own reply or one error: as soon as a command has
    waited for `timeout_s`, or the connection is lost, all waiting commands fail, since it is unknown which of them ran.
    While nothing waits, only TCP keepalive notices that the other side has gone.

    A connection to a store that has become a replica is left: it counts as lost, but commands that wait still get their
    replies.
    """

    def __init__(self, connection: StoreConnection, timeout_s: float, on_loss: Callable[[], None]) -> None:
        """Take over a connection that is open and logged in; the order of replies starts with the next command.

        `on_loss` is called once, when the connection is lost.
        """
        self.lost = False
        self._ended = False
        self._on_loss = on_loss
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._waiting: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._watchdog: asyncio.TimerHandle | None = None
        self._reader = Reader(
            protocolError=InvalidResponse, replyError=connection.parse_error, notEnoughData=_INCOMPLETE
        )
        self._writer = connection.hand_over(self)
        self._transport = self._writer.transport

    def send(self, *command: Argument) -> asyncio.Future[Any]:
        """Send a command; return a future for its reply, or for the error that redis-py would have raised.

        Raises ConnectionError, and sends nothing, when the connection is lost.
        """
        packed = pack_command(command)  # type: ignore[arg-type]  # Its stub expects a tuple of one.
        if self.lost:
            raise ConnectionError("the connection to the store was lost")
        reply: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append((reply, self._loop.time()))
        if self._watchdog is None:
            self._watchdog = self._loop.call_later(self._timeout_s, self._check_timeout)
        try:
            self._transport.write(packed)
        except (RuntimeError, OSError) as error:
            # uvloop raises this for writing to a connection that the store closed a moment ago.
            self._fail(ConnectionError(f"the store has closed the connection: {error}"))
        return reply

    def leave(self) -> None:
        """Count as lost from now on; commands that wait still get their replies."""
        self._lose()
        if not self._waiting:
            self._fail(ConnectionError("the store has another master"))

    async def aclose(self) -> None:
        """Close the connection; waiting calls fail with ConnectionError."""
        self._fail(ConnectionError("the client was closed"))
        await self.wait_closed()

    async def wait_closed(self) -> None:
        """Wait until the connection is closed, which a lost one is soon, or once nothing waits any more."""
        await asyncio.shield(self._closed)

    def data_received(self, data: bytes) -> None:
        """Hand every reply in `data` to the call it belongs to."""
        if self._ended:
            return
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not _INCOMPLETE:
                if not self._waiting:
                    raise InvalidResponse(f"unexpected reply: {reply!r}"[:200])
                call, _ = self._waiting.popleft()
                if not isinstance(reply, Exception):
                    if not call.done():
                        call.set_result(reply)
                    continue
                if not call.done():
                    call.set_exception(reply)
                if isinstance(reply, ReadOnlyError):
                    # After a failover, a new connection leads to the new master; this one never will.
                    self._lose()
            if self.lost and not self._waiting:
                self._fail(ConnectionError("the store has another master"))
        except InvalidResponse as error:
            self._fail(ConnectionError(f"cannot read what the store sent: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        """Fail every waiting call."""
        self._fail(ConnectionError(f"the store has closed the connection: {error or 'end of stream'}"))
        if not self._closed.done():
            self._closed.set_result(None)

    def _check_timeout(self) -> None:
        # One timer for all calls: when they come one after the other, it fires at most once per timeout.
        self._watchdog = None
        if self._waiting:
            left_s = self._waiting[0][1] + self._timeout_s - self._loop.time()
            if left_s <= 0:
                self._fail(StoreTimeoutError(f"the store has not answered for {self._timeout_s:g} s"))
            else:
                self._watchdog = self._loop.call_later(left_s, self._check_timeout)

    def _lose(self) -> None:
        if not self.lost:
            self.lost = True
            self._on_loss()

    def _fail(self, error: RedisError) -> None:
        if self._ended:
            return
        self._ended = True
        self._lose()
        if self._watchdog is not None:
            self._watchdog.cancel()
        self._transport.abort()
        for call, _ in self._waiting:
            if not call.done():
                call.set_exception(type(error)(*error.args))
        self._waiting.clear()


class ReconnectingPipe:
    """A pipe to one server: connected when first needed, and reconnected by the first call after a loss.

    All calls share one attempt to connect, and its error. No call takes longer than `connect_timeout_s` and
    `socket_timeout_s` together, and none is sent twice.
    """

    def __init__(
        self,
        connection: Callable[[], StoreConnection],
        socket_timeout_s: float,
        connect_timeout_s: float,
        on_loss: Callable[[], None],
    ) -> None:
        """Get connections, not yet connected, from `connection`; `on_loss` is called whenever one is lost."""
        self._connection = connection
        self._on_loss = on_loss
        self._timeout_s = socket_timeout_s
        self._total_timeout_s = connect_timeout_s + socket_timeout_s
        self._pipe: Pipe | None = None
        self._address: tuple[Any, Any] = None, None
        self._opening = SharedAttempt(self._connect)

    def call(self, *command: Argument) -> Awaitable[Any]:
        """Send a command; the returned awaitable gives its reply, or raises redis-py's error."""
        pipe = self._pipe
        if pipe is None or pipe.lost:
            return self._connect_and_call(*command)
        return pipe.send(*command)

    async def aclose(self) -> None:
        """Close the connection; waiting calls fail with ConnectionError."""
        await self._opening.aclose()
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            await pipe.aclose()

    def leave_unless_at(self, address: tuple[str, int]) -> None:
        """Leave the server, unless this is its host and port: the next call connects anew."""
        if self._pipe is not None and not self._pipe.lost and self._address != address:
            self._pipe.leave()

    async def _connect_and_call(self, *command: Argument) -> Any:
        try:
            async with asyncio.timeout(self._total_timeout_s):
                pipe = await self._connected_pipe()
                if pipe.lost:
                    # Left since it was opened, because of another call: this one has yet to be sent.
                    pipe = await self._connected_pipe()
                return await pipe.send(*command)
        except TimeoutError:
            raise StoreTimeoutError(f"the store has not answered for {self._total_timeout_s:g} s") from None

    async def _connected_pipe(self) -> Pipe:
        if self._pipe is not None and not self._pipe.lost:
            # Opened since this call was made: opening another would orphan it.
            return self._pipe
        return await self._opening()

    async def _connect(self) -> Pipe:
        if self._pipe is not None:
            await self._pipe.wait_closed()
        connection = self._connection()
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
            if await connection.can_read():
                raise ConnectionError("the store sent something before it was asked for anything")
            self._pipe = Pipe(connection, self._timeout_s, self._on_loss)
            self._address = getattr(connection, "host", None), getattr(connection, "port", None)
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return self._pipe
