"""One connection on which many commands are under way at once, at a fraction of what redis-py spends on each."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from hiredis import Reader, pack_command
from redis.exceptions import ConnectionError, InvalidResponse, ReadOnlyError, RedisError
from redis.exceptions import TimeoutError as StoreTimeoutError

from tradewind.server.redis.connections import StoreConnection

Word: TypeAlias = str | bytes | int | float

_INCOMPLETE = object()


class Pipe(asyncio.Protocol):
    """A connection that redis-py has opened, driven without it; commands go out as they come.

    Replies match commands by order alone, so each command keeps its place until its reply is read, whether or not its
    caller still waits, and whatever breaks the order (a reply that cannot be read or that nobody asked for) ends the
    connection. Every command is sent once, and its caller gets its own reply or one error: as soon as a command has
    waited for `timeout_s`, or the connection is lost, all that wait fail, since none of them can be told to have run.
    While nothing waits, TCP keepalive alone finds out that the other side has gone.
    """

    def __init__(self, connection: StoreConnection, timeout_s: float, on_loss: Callable[[], None]) -> None:
        """Take over a connection that is open and logged in; its next command starts a new order.

        `on_loss` is called once, when the connection is lost.
        """
        self.lost = False
        self._on_loss = on_loss
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._waiting: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._watchdog: asyncio.TimerHandle | None = None
        self._reader = Reader(
            protocolError=InvalidResponse, replyError=connection.parse_error, notEnoughData=_INCOMPLETE
        )
        self._writer = connection.hand_over(self)
        self._transport = self._writer.transport

    def send(self, *command: Word) -> asyncio.Future[Any]:
        """Send a command and return what becomes its reply, or the error that redis-py would have raised for it.

        Raises ConnectionError, and sends nothing, when the connection is lost.
        """
        packed = pack_command(command)  # type: ignore[arg-type]  # Its stub knows a tuple of one.
        if self.lost:
            raise ConnectionError("the connection to the store was lost")
        reply: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append((reply, self._loop.time()))
        if self._watchdog is None:
            self._watchdog = self._loop.call_later(self._timeout_s, self._watch)
        try:
            self._transport.write(packed)
        except (RuntimeError, OSError) as error:
            # What uvloop raises for writing to what the store has closed a moment ago.
            self._lose(ConnectionError(f"the store has closed the connection: {error}"))
        return reply

    async def aclose(self) -> None:
        """Close the connection; calls that wait fail with ConnectionError."""
        self._lose(ConnectionError("the client was closed"))
        await asyncio.shield(self._ended)

    def data_received(self, data: bytes) -> None:
        """Hand every reply in `data` to the call that it belongs to."""
        if self.lost:
            return
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not _INCOMPLETE:
                if not self._waiting:
                    raise InvalidResponse(f"the store sent a reply that nobody had asked for: {reply!r}"[:200])
                call, _ = self._waiting.popleft()
                if not isinstance(reply, Exception):
                    if not call.done():
                        call.set_result(reply)
                    continue
                if not call.done():
                    call.set_exception(reply)
                if isinstance(reply, ReadOnlyError):
                    # After a failover the next connection leads to the new master, this one never will.
                    self._lose(ConnectionError("the store has become a replica"))
                    return
        except InvalidResponse as error:
            self._lose(ConnectionError(f"what the store sent makes no sense: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        """Fail every call that waits."""
        self._lose(ConnectionError(f"the store has closed the connection: {error or 'end of stream'}"))
        if not self._ended.done():
            self._ended.set_result(None)

    def _watch(self) -> None:
        # One timer for all: at most one a timeout when calls come one after the other.
        self._watchdog = None
        if self._waiting:
            left_s = self._waiting[0][1] + self._timeout_s - self._loop.time()
            if left_s <= 0:
                self._lose(StoreTimeoutError(f"the store has not answered for {self._timeout_s:g} s"))
            else:
                self._watchdog = self._loop.call_later(left_s, self._watch)

    def _lose(self, error: RedisError) -> None:
        if self.lost:
            return
        self.lost = True
        self._on_loss()
        if self._watchdog is not None:
            self._watchdog.cancel()
        self._transport.abort()
        for call, _ in self._waiting:
            if not call.done():
                call.set_exception(type(error)(*error.args))
        self._waiting.clear()


class LastingPipe:
    """A pipe to one server: connected when first needed, and anew by the first call after it was lost.

    All calls share one attempt to connect and its error. None takes longer than `connect_timeout_s` and
    `socket_timeout_s` together, and none is sent a second time.
    """

    def __init__(
        self,
        connection: Callable[[], StoreConnection],
        socket_timeout_s: float,
        connect_timeout_s: float,
        on_loss: Callable[[], None] = lambda: None,
    ) -> None:
        """Get connections, not yet connected, from `connection`; `on_loss` is called whenever one is lost."""
        self._connection = connection
        self._on_loss = on_loss
        self._timeout_s = socket_timeout_s
        self._patience_s = connect_timeout_s + socket_timeout_s
        self._pipe: Pipe | None = None
        self._opening: asyncio.Task[Pipe] | None = None

    def call(self, *command: Word) -> Awaitable[Any]:
        """Send a command; its reply, or redis-py's error, is what the returned awaitable gives."""
        pipe = self._pipe
        if pipe is None or pipe.lost:
            return self._call_anew(*command)
        return pipe.send(*command)

    async def aclose(self) -> None:
        """Close the connection; calls that wait fail with ConnectionError."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
            await asyncio.wait([opening])
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            await pipe.aclose()

    async def _call_anew(self, *command: Word) -> Any:
        try:
            async with asyncio.timeout(self._patience_s):
                return await (await self._opened()).send(*command)
        except TimeoutError:
            raise StoreTimeoutError(f"the store has not answered for {self._patience_s:g} s") from None

    async def _opened(self) -> Pipe:
        if self._pipe is not None and not self._pipe.lost:
            # Opened since this call was made: another one would leave that one to nobody.
            return self._pipe
        if self._opening is None or self._opening.done():
            self._opening = asyncio.get_running_loop().create_task(self._open())
            # An error is nobody's when every caller has given up.
            self._opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        opening = self._opening
        # Not a task of the first caller's: its end would be the end of everybody's attempt.
        await asyncio.wait([opening])
        if opening.cancelled():
            raise ConnectionError("the client was closed")
        return opening.result()

    async def _open(self) -> Pipe:
        connection = self._connection()
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
            if await connection.can_read():
                raise ConnectionError("the store sent something before it was asked")
            self._pipe = Pipe(connection, self._timeout_s, self._on_loss)
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return self._pipe
