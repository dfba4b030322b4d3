"""Connections that report their loss in one way, on any event loop, and that can be handed over."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, ClassVar
from weakref import WeakSet

from redis.asyncio.connection import (
    AbstractConnection,
    Connection,
    DefaultParser,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.asyncio.sentinel import SentinelManagedConnection
from redis.exceptions import ConnectionError, OutOfMemoryError, ReadOnlyError, ResponseError


class DiskFails(ResponseError):
    """The store cannot write to its disk, which may be full. Besides writes, it refuses PING."""


class ReplicasMissing(ResponseError):
    """The store has fewer replicas connected than `min-replicas-to-write`."""


class StoreBusy(ResponseError):
    """A script has kept the store busy for so long that it refuses everything else."""


WRITE_REFUSALS = (ReadOnlyError, OutOfMemoryError, DiskFails, ReplicasMissing)
"""How a store refuses writes that still answers reads."""


class _Parser(DefaultParser):  # type: ignore[misc, valid-type]  # The parser that uses hiredis.
    EXCEPTION_CLASSES: ClassVar = {
        **DefaultParser.EXCEPTION_CLASSES,
        "MISCONF": DiskFails,
        "NOREPLICAS": ReplicasMissing,
        "BUSY": StoreBusy,
    }


class Lifetime:
    """The lifetime of a client. When it is over, its connections are closed, and late calls open no new ones."""

    def __init__(self) -> None:
        self._connections: WeakSet[StoreConnection] = WeakSet()
        self._ended = False

    def add(self, connection: "StoreConnection") -> None:
        """Add a connection."""
        self._connections.add(connection)

    def end(self) -> None:
        """Close every connection, without waiting for the store to notice."""
        self._ended = True
        for connection in list(self._connections):
            connection.close()

    def require_open(self) -> None:
        """Raise ConnectionError when the lifetime is over."""
        if self._ended:
            raise ConnectionError("the client was closed")


class StoreConnection(AbstractConnection):
    """One of a client's connections; it ends with the client."""

    def __init__(self, *args: Any, lifetime: Lifetime, **options: Any) -> None:
        super().__init__(*args, parser_class=_Parser, **options)
        self._lifetime = lifetime
        lifetime.add(self)

    def close(self) -> None:
        """Close it at once; a caller waiting for a reply gets ConnectionError."""
        if self._writer is not None:
            self._writer.close()

    async def _connect(self) -> None:
        self._lifetime.require_open()
        await super()._connect()  # type: ignore[no-untyped-call, safe-super]
        try:
            self._lifetime.require_open()
        except ConnectionError:
            self.close()
            raise

    async def send_packed_command(self, command: bytes | str | Iterable[bytes], check_health: bool = True) -> None:
        try:
            await super().send_packed_command(command, check_health)
        except (RuntimeError, AttributeError, TypeError) as error:
            # Raised by uvloop where asyncio raises an OSError, by redis-py when another task has disconnected it, and
            # by the writer of Python 3.12 and 3.13 once closed.
            raise ConnectionError(f"the store has closed the connection: {error}") from error

    async def _send_ping(self) -> None:
        with suppress(DiskFails):  # That is an answer, too.
            await super()._send_ping()  # type: ignore[no-untyped-call]

    def parse_error(self, text: str) -> Exception:
        """Return redis-py's exception for the text of an error reply."""
        error: Exception = self._parser.parse_error(text)  # type: ignore[no-untyped-call]
        return error

    def hand_over(self, protocol: asyncio.Protocol) -> asyncio.StreamWriter:
        """Let `protocol` receive all data from now on, and forget the connection, which must be open and silent.

        Returns its writer, which must be kept as long as the transport is open.
        """
        assert self._writer is not None
        writer, self._reader, self._writer = self._writer, None, None
        writer.transport.set_protocol(protocol)
        return writer


class TcpConnection(StoreConnection, Connection):
    """A plain connection."""


class TlsConnection(StoreConnection, SSLConnection):
    """A connection over TLS; its files are read whenever it is opened."""

    async def _connect(self) -> None:
        self.ssl_context.context = None
        await super()._connect()


class UnixConnection(StoreConnection, UnixDomainSocketConnection):
    """A connection over a socket of this machine."""


class SentinelConnection(StoreConnection, SentinelManagedConnection):
    """A connection to the server that Sentinel names."""


class SentinelTlsConnection(SentinelConnection, TlsConnection):
    """The same, over TLS."""


def connection_class(kind: str, tls: bool) -> type[Any]:
    """Return the class for a store of this kind: `unix`, `sentinel`, or any other."""
    if kind == "unix":
        return UnixConnection
    if kind == "sentinel":
        return SentinelTlsConnection if tls else SentinelConnection
    return TlsConnection if tls else TcpConnection
