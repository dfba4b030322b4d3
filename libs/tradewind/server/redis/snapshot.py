"""A snapshot of a running store, fetched with the protocol that replicas use."""

import asyncio
import os
import ssl
from io import FileIO
from pathlib import Path

from tradewind.server.redis.address import StoreAddress
from tradewind.tls import SYSTEM, TlsFiles

_CHUNK = 1 << 20
_ANSWER_S = 30.0
_SAVING_S = 600.0
"""How long a store may take to write its snapshot; it reports every ten seconds that it is still writing."""


class SnapshotError(Exception):
    """The snapshot failed; the message says why and what to do."""


async def fetch_snapshot(
    url: str, target: Path, *, user: str | None = None, password: str | None = None, tls: TlsFiles | None = None
) -> None:
    """Write the whole store at `url`, as of one moment, to the file `target` (RDB).

    The store keeps running; it forks once and writes a temporary file of its own. `user` needs only the commands PING,
    SYNC and REPLCONF. Behind Sentinel, the master is used. `tls` are the certificates for `rediss://`, as in `connect`.
    Raises SnapshotError.
    """
    try:
        address = StoreAddress.parse(url)
        context = _context(tls) if address.tls else None
    except (ValueError, OSError) as error:
        raise SnapshotError(str(error)) from None
    if address.kind == "cluster":
        raise SnapshotError(
            "a cluster cannot be backed up as one: back up each master, as redis://host:port, into its own directory"
        )
    try:
        link = await (
            _master(address, context) if address.kind == "sentinel" else _open(address, context, *address.hosts[:1])
        )
        try:
            await link.log_in(user or address.user, password or address.password)
            await link.ask("REPLCONF", "rdb-only", "1")
            await link.receive(target)
        finally:
            link.close()
    except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
        reason = str(error) or type(error).__name__
        raise SnapshotError(
            f"the store did not send a complete snapshot: {reason}; check that it is running, and try again"
        ) from error


class _Link:
    """One connection, without a client in between: clients cannot read a snapshot as a reply."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def log_in(self, user: str | None, password: str | None) -> None:
        if user or password:
            await self.ask("AUTH", *([user] if user else []), password or "")

    async def ask(self, *words: str) -> list[str]:
        """Send a command and return the texts of its reply; none for null."""
        self._send(*words)
        async with asyncio.timeout(_ANSWER_S):
            return await self._reply(words[0])

    async def receive(self, target: Path) -> None:
        """Ask for a snapshot and write it to `target`."""
        self._send("SYNC")
        line = b""
        # Empty lines say that the snapshot is still being made.
        while not line:
            async with asyncio.timeout(_SAVING_S):
                line = (await self._reader.readline()).strip()
            if self._reader.at_eof():
                raise OSError("it closed the connection")
        if not line.startswith(b"$") or not line[1:].isdigit():
            raise SnapshotError(
                f"the store refused: {line.decode(errors='replace')}; the user needs the commands SYNC and REPLCONF"
            )
        size = left = int(line[1:])
        # Without a buffer, which could not be written when the file is closed either.
        with target.open("xb", buffering=0) as file:
            while left:
                async with asyncio.timeout(_ANSWER_S):
                    piece = await self._reader.read(min(left, _CHUNK))
                if not piece:
                    raise OSError(f"it ended {left} bytes short of {size}")
                await asyncio.to_thread(_write_all, file, piece)
                left -= len(piece)

    def close(self) -> None:
        self._writer.close()

    def _send(self, *words: str) -> None:
        parts = [f"*{len(words)}\r\n".encode()]
        for word in words:
            data = word.encode()
            parts += [f"${len(data)}\r\n".encode(), data, b"\r\n"]
        self._writer.write(b"".join(parts))

    async def _reply(self, command: str) -> list[str]:
        line = (await self._reader.readuntil(b"\r\n"))[:-2].decode()
        kind, value = line[:1], line[1:]
        if kind == "-":
            raise SnapshotError(f"the store refused {command}: {value}")
        if kind == "*":
            return [text for _ in range(int(value)) for text in await self._reply(command)]
        if kind != "$":
            return [value]
        if int(value) < 0:
            return []
        return [(await self._reader.readexactly(int(value) + 2))[:-2].decode()]


def _write_all(file: FileIO, data: bytes) -> None:
    """Write data to a file. Raises SnapshotError, so that its disk is not taken for the connection."""
    left = memoryview(data)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        raise SnapshotError(f"{os.fsdecode(file.name)}: {error.strerror}") from error


def _context(tls: TlsFiles | None) -> ssl.SSLContext:
    if tls is None:
        return ssl.create_default_context()
    tls.read()
    context = ssl.create_default_context(cafile=tls.ca if tls.ca != SYSTEM else None)
    if tls.cert:
        context.load_cert_chain(tls.cert, tls.key)
    return context


async def _open(address: StoreAddress, context: ssl.SSLContext | None, host: tuple[str, int] | None = None) -> _Link:
    if host is None:
        opening = asyncio.open_unix_connection(address.path)
    else:
        opening = asyncio.open_connection(*host, ssl=context)
    async with asyncio.timeout(_ANSWER_S):
        return _Link(*await opening)


async def _master(address: StoreAddress, context: ssl.SSLContext | None) -> _Link:
    failed = "there is none"
    for host in address.hosts:
        try:
            sentinel = await _open(address, context, host)
            try:
                address_of_master = await sentinel.ask("SENTINEL", "get-master-addr-by-name", address.service)
            finally:
                sentinel.close()
        except (OSError, TimeoutError) as error:
            failed = str(error)
            continue
        if address_of_master:
            return await _open(address, context, (address_of_master[0], int(address_of_master[1])))
        failed = f'it knows no master "{address.service}"'
    raise SnapshotError(f"no Sentinel knows the address of the master: {failed}")
