"""One shared pub/sub connection per process, fanned out in memory; repairs itself and reports lost messages."""

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import structlog
from redis.asyncio.client import PubSub
from redis.exceptions import ConnectionError, NoPermissionError, RedisError

from tradewind.server.backoff import Backoff
from tradewind.server.incidents import IncidentLog
from tradewind.server.redis.client import connect_single
from tradewind.server.redis.connections import DiskFails
from tradewind.server.side_tasks import SideTasks
from tradewind.tls import TlsFiles

_POLL_S = 20.0
_ANSWER_S = 5.0
"""How long the store may take to answer on a connection that is in doubt."""
_BACKOFF_S = (0.1, 2.0)
_SILENT = "the store does not answer on the connection for messages"

_log = structlog.get_logger(__name__)

Callback = Callable[[str, bytes], None]
"""Gets the channel and the message, on the event loop; must not block."""

Gap = Callable[[], None]
"""Called when messages may have been lost, once the connection is back."""


class Subscriber:
    """Channels and patterns of one store user over one connection.

    Redis does not keep messages: after every reconnect the `on_gap` callbacks run, so that subscribers can check for
    themselves. On a cluster any node will do, since a published message reaches all of them.
    """

    def __init__(
        self, url: str, *, user: str | None = None, password: str | None = None, tls: TlsFiles | None = None
    ) -> None:
        self._url = url
        self._user = user
        self._password = password
        self._tls = tls
        self._callbacks: dict[str, list[tuple[Callback, Gap | None]]] = {}
        self._confirmed: dict[str, asyncio.Future[None]] = {}
        self._pubsub: PubSub | None = None
        self._unconfirmed: set[str] = set()
        self._sending = asyncio.Lock()
        self._was_connected = False
        self._was_permitted = False
        self._patience = asyncio.Timeout(None)
        self._doubted: PubSub | None = None
        self._backoff = Backoff(*_BACKOFF_S)
        self._losses = IncidentLog(_log, "subscriber_lost_store", "subscriber_recovered")
        self._tasks = SideTasks()

    def start(self) -> None:
        """Connect and keep connected; returns at once."""
        self._tasks.begin(self._run())

    async def stop(self) -> None:
        """Close the connection; no callbacks run after this."""
        await self._tasks.end()
        for future in self._confirmed.values():
            future.cancel()
        self._confirmed.clear()

    async def subscribe(self, channel: str, callback: Callback, on_gap: Gap | None = None) -> Callable[[], None]:
        """Subscribe to a channel, or to a pattern when it holds `*` or `?`; return a function that ends it.

        Returns once the store has confirmed, so that no message published from then on is missed; waits as long as the
        store is away. The ACL user must be allowed exactly this channel or pattern. Raises OSError with a sentence for
        people if it is not, and never was allowed any.
        """
        entry = (callback, on_gap)
        self._callbacks.setdefault(channel, []).append(entry)
        confirmed = self._confirmed.get(channel)
        if confirmed is None:
            confirmed = self._confirmed[channel] = asyncio.get_running_loop().create_future()
            # A task of its own: redis-py closes a connection when a send is cancelled, and all share this one.
            self._tasks.begin(self._send_subscribe(channel))
        try:
            await asyncio.shield(confirmed)
        except BaseException:
            self._remove(channel, entry)
            raise
        return lambda: self._remove(channel, entry)

    def doubt(self) -> None:
        """Give the connection up unless the store answers on it soon: another connection to the store was lost.

        Otherwise it takes up to a minute to notice that a server hangs, or that its machine is gone.
        """
        if self._pubsub is not None and self._doubted is not self._pubsub:
            self._doubted = self._pubsub
            self._tasks.begin(self._check(self._pubsub, self._patience))

    def leave_unless_at(self, address: tuple[str, int]) -> None:
        """Connect anew, unless the connection leads to this host and port."""
        connection: Any = self._pubsub.connection if self._pubsub is not None else None
        if connection is not None and (connection.host, connection.port) != address:
            connection.close()

    async def _check(self, pubsub: PubSub, patience: asyncio.Timeout) -> None:
        connection: Any = pubsub.connection
        if connection is None:
            # It was lost together with the other one.
            return
        heard = connection.next_health_check
        await self._send("PING")
        await asyncio.sleep(_ANSWER_S)
        if self._pubsub is pubsub:
            self._doubted = None
            if connection.next_health_check == heard:
                patience.reschedule(asyncio.get_running_loop().time())

    async def _send_subscribe(self, channel: str) -> None:
        await self._send("PSUBSCRIBE" if _is_pattern(channel) else "SUBSCRIBE", channel)

    async def _send(self, *command: str) -> None:
        async with self._sending:
            connection = self._pubsub.connection if self._pubsub is not None else None
            if connection is not None and connection.is_connected:
                # If it fails, the connection is broken: the loop reconnects and subscribes to everything. redis-py must
                # not reconnect by itself while the loop reads.
                with suppress(RedisError, OSError, RuntimeError):
                    await connection.send_command(*command, check_health=False)

    def _remove(self, channel: str, entry: tuple[Callback, Gap | None]) -> None:
        # They are not unsubscribed: unwanted channels are rare, and each costs one dictionary lookup per message.
        entries = self._callbacks.get(channel, [])
        if entry in entries:
            entries.remove(entry)

    async def _run(self) -> None:
        for attempt in itertools.count():
            try:
                await self._listen(attempt)
            except (RedisError, OSError) as error:
                if isinstance(error, NoPermissionError) and not self._was_permitted:
                    self._refuse(error)
                else:
                    self._losses.note_error(error)
            except Exception:
                _log.exception("subscriber_failed")
            await self._backoff.pause()

    async def _listen(self, attempt: int) -> None:
        """Connect, and deliver messages until the connection is lost."""
        client = connect_single(self._url, user=self._user, password=self._password, tls=self._tls, node_index=attempt)
        pubsub = client.pubsub()
        try:
            await pubsub.connect()  # type: ignore[no-untyped-call]
            self._unconfirmed = set(self._callbacks) if self._was_connected else set()
            async with asyncio.timeout(None) as self._patience:
                self._pubsub = pubsub
                await self._subscribe_all(pubsub, list(self._callbacks))
                self._was_connected = True
                self._backoff.reset()
                while True:
                    message = await _next_message(pubsub)
                    if message is not None:
                        self._deliver(message)
                    else:
                        _require_alive(pubsub)
        except TimeoutError as error:
            raise ConnectionError(_SILENT) from error
        finally:
            self._pubsub = None
            self._reset_confirmed()
            try:
                # Let a send in progress on it finish.
                async with self._sending:
                    with suppress(RedisError, OSError):
                        await pubsub.aclose()  # type: ignore[no-untyped-call]
            finally:
                await client.end()

    async def _subscribe_all(self, pubsub: PubSub, channels: list[str]) -> None:
        exact = [channel for channel in channels if not _is_pattern(channel)]
        patterns = [channel for channel in channels if _is_pattern(channel)]
        if exact:
            await pubsub.subscribe(*exact)
        if patterns:
            await pubsub.psubscribe(*patterns)

    def _deliver(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind in ("subscribe", "psubscribe"):
            self._confirm(message["channel"].decode())
            return
        if kind not in ("message", "pmessage"):
            return
        channel = message["channel"].decode()
        subscribed = message["pattern"].decode() if kind == "pmessage" else channel
        for callback, _ in list(self._callbacks.get(subscribed, ())):
            try:
                callback(channel, message["data"])
            except Exception:
                _log.exception("subscriber_callback_failed", channel=channel)

    def _refuse(self, error: NoPermissionError) -> None:
        """End the wait of those whose rights will hardly come while they wait."""
        for channel, future in self._confirmed.items():
            message = f"the store refuses its user the channel {channel}: {error}; give it that with &, and +@pubsub"
            future.set_exception(PermissionError(message))
        self._confirmed.clear()
        self._callbacks.clear()

    def _confirm(self, channel: str) -> None:
        self._was_permitted = True
        future = self._confirmed.get(channel)
        if future is not None and not future.done():
            future.set_result(None)
        if channel in self._unconfirmed:
            self._unconfirmed.discard(channel)
            # Only now is nothing missed any more, so a check made now sees everything.
            if not self._unconfirmed:
                self._notify_gap()

    def _reset_confirmed(self) -> None:
        """Let those who subscribe from now on wait until the store has confirmed the channel on the next connection."""
        for channel, future in self._confirmed.items():
            if future.done():
                self._confirmed[channel] = asyncio.get_running_loop().create_future()

    def _notify_gap(self) -> None:
        for entries in list(self._callbacks.values()):
            for _, on_gap in list(entries):
                if on_gap is None:
                    continue
                try:
                    on_gap()
                except Exception:
                    _log.exception("subscriber_gap_callback_failed")


async def _next_message(pubsub: PubSub) -> dict[str, Any] | None:
    """Return the next message, None when none has come within one poll."""
    try:
        message: dict[str, Any] | None = await pubsub.get_message(timeout=_POLL_S)
    except DiskFails:
        # This answers the PING that redis-py has sent.
        return None
    return message


def _require_alive(pubsub: PubSub) -> None:
    """Raise ConnectionError when the store has not answered within one poll, at whose start it was pinged.

    redis-py pings after a time that each answer postpones, and does not mind when no answer comes.
    """
    connection = pubsub.connection
    if connection is not None and asyncio.get_running_loop().time() > connection.next_health_check + _POLL_S:
        raise ConnectionError(_SILENT)


def _is_pattern(channel: str) -> bool:
    return "*" in channel or "?" in channel
