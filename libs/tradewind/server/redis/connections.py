"""Connections that say in one way that they are lost, on whatever event loop they run, and can be handed over."""

import asyncio
from collections.abc import Iterable
from typing import Any

from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.sentinel import SentinelManagedConnection
from redis.exceptions import ConnectionError


class StoreConnection(AbstractConnection):
    """uvloop raises RuntimeError for writing to what the store has closed, where asyncio raises an OSError."""

    async def send_packed_command(self, command: bytes | str | Iterable[bytes], check_health: bool = True) -> None:
        try:
            await super().send_packed_command(command, check_health)
        except RuntimeError as error:
            raise ConnectionError(f"the store has closed the connection: {error}") from error

    def parse_error(self, text: str) -> Exception:
        """Return redis-py's exception for the text of an error reply."""
        error: Exception = self._parser.parse_error(text)  # type: ignore[no-untyped-call]
        return error

    def hand_over(self, protocol: asyncio.Protocol) -> asyncio.StreamWriter:
        """Let `protocol` have what arrives from now on, and forget the connection, which is to be open and silent.

        Returns its writer, to be kept for as long as the transport is open.
        """
        assert self._writer is not None
        writer, self._reader, self._writer = self._writer, None, None
        writer.transport.set_protocol(protocol)
        return writer


class TcpConnection(StoreConnection, Connection):
    """A plain connection."""


class TlsConnection(StoreConnection, SSLConnection):
    """A connection over TLS."""


class UnixConnection(StoreConnection, UnixDomainSocketConnection):
    """A connection over a socket of this machine."""


class SentinelConnection(StoreConnection, SentinelManagedConnection):
    """A connection to the server that Sentinel names."""


class SentinelTlsConnection(SentinelConnection, SSLConnection):
    """The same, over TLS."""


def connection_class(kind: str, tls: bool) -> type[Any]:
    """Return the class for a store of this kind: `unix`, `sentinel`, or any other."""
    if kind == "unix":
        return UnixConnection
    if kind == "sentinel":
        return SentinelTlsConnection if tls else SentinelConnection
    return TlsConnection if tls else TcpConnection
