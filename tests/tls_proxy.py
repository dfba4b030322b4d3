"""A proxy that terminates TLS in front of a store that was built without it."""

import asyncio
import ssl
from contextlib import suppress

from tradewind.tls import TlsFiles


class TlsProxy:
    """Listens on 127.0.0.1:`port` with certificates, and forwards to a port in plain text."""

    def __init__(self, files: TlsFiles, to_port: int, *, require_client_cert: bool = False) -> None:
        self._files = files
        self._to_port = to_port
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if require_client_cert:
            self._context.verify_mode = ssl.CERT_REQUIRED
            self._context.load_verify_locations(str(files.ca))
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def __aenter__(self) -> "TlsProxy":
        self.reload()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_error: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()

    def reload(self) -> None:
        """Use the files as they are now, for new connections."""
        assert self._files.cert is not None
        self._context.load_cert_chain(self._files.cert, self._files.key)

    def cut(self) -> None:
        """Break every connection."""
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        store_reader, store_writer = await asyncio.open_connection("127.0.0.1", self._to_port)
        both = {writer, store_writer}
        self._open |= both
        try:
            await asyncio.gather(_pump(reader, store_writer), _pump(store_reader, writer))
        finally:
            self._open -= both
            for each in both:
                each.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, asyncio.IncompleteReadError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    # Data on its way still arrives.
    writer.close()
