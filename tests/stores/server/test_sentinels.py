"""Which Sentinels a client asks for the master."""

import asyncio
from contextlib import suppress
from typing import Any

from tests.ports import free_port
from tradewind.server.redis.client import connect

MASTER = ("127.0.0.1", 1)
_STATE = ("name", "primary", "ip", MASTER[0], "port", str(MASTER[1]), "flags", "master", "num-other-sentinels", "1")
_MASTERS = f"*1\r\n*{len(_STATE)}\r\n" + "".join(f"${len(each)}\r\n{each}\r\n" for each in _STATE)


class Sentinel:
    """Names MASTER as the master while it is up."""

    def __init__(self) -> None:
        self.port = free_port()
        self._server: asyncio.Server | None = None
        self._connections: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for each in self._connections:
            each.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.append(writer)
        with suppress(ConnectionError):
            while header := await reader.readline():
                words = []
                for _ in range(int(header[1:])):
                    size = int((await reader.readline())[1:])
                    words.append((await reader.readexactly(size + 2))[:-2])
                writer.write(_MASTERS.encode() if words[0] == b"SENTINEL" else b"+OK\r\n")


async def test_sentinel_that_was_away_when_several_asked_at_once_is_asked_again() -> None:
    away, other = Sentinel(), Sentinel()
    client: Any = connect(f"redis+sentinel://127.0.0.1:{away.port},127.0.0.1:{other.port}/primary")
    pool = client.connection_pool
    try:
        await other.start()
        assert await asyncio.gather(*(pool.get_master_address() for _ in range(3))) == [MASTER] * 3
        await other.stop()
        await away.start()
        assert await pool.get_master_address() == MASTER
        await away.stop()
    finally:
        await client.end()
