"""Connections that stay open and do nothing: as much HTTP/2 as a server asks for, and no calls.

    python -m benchmarks.soak.crowd HOST PORT COUNT

Prints how many are open once all have been tried, holds them until its input ends, then prints how many were closed.
"""

import asyncio
import sys
from typing import cast

import uvloop

from tradewind.server.connection_limits import raise_open_files

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD = 9
_SETTINGS, _PING, _GOAWAY = 4, 6, 7
_ACK = 1
_AT_ONCE = 200


def frame(kind: int, flags: int = 0, payload: bytes = b"") -> bytes:
    """Return a frame that concerns the connection as a whole (stream 0)."""
    return len(payload).to_bytes(3) + bytes((kind, flags)) + bytes(4) + payload


class IdleConnection(asyncio.Protocol):
    """Greets the server, acknowledges its settings and answers its pings."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.greeted: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self.farewell = b""
        """What the server sent when it closed the connection."""
        self.pings = 0
        self._received = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(_PREFACE + frame(_SETTINGS))

    def data_received(self, data: bytes) -> None:
        received = self._received + data
        while len(received) >= _HEAD:
            end = _HEAD + int.from_bytes(received[:3])
            if len(received) < end:
                break
            self._frame_received(received[3], received[4], received[_HEAD:end])
            received = received[end:]
        self._received = received

    def connection_lost(self, error: Exception | None) -> None:
        for future in (self.greeted, self.closed):
            if not future.done():
                future.set_result(None)

    def close(self) -> None:
        """Hang up."""
        self._transport.close()

    def _frame_received(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == _SETTINGS and not flags & _ACK:
            self._transport.write(frame(_SETTINGS, _ACK))
            if not self.greeted.done():
                self.greeted.set_result(None)
        elif kind == _PING and not flags & _ACK:
            self.pings += 1
            self._transport.write(frame(_PING, _ACK, payload))
        elif kind == _GOAWAY:
            self.farewell = payload[8:]


async def open_crowd(host: str, port: int, count: int) -> list[IdleConnection]:
    """Open `count` connections, and return them once the server has greeted or closed each."""
    loop = asyncio.get_running_loop()
    crowd: list[IdleConnection] = []
    for first in range(0, count, _AT_ONCE):
        made = await asyncio.gather(
            *(loop.create_connection(IdleConnection, host, port) for _ in range(min(_AT_ONCE, count - first)))
        )
        protocols = [protocol for _, protocol in made]
        await asyncio.gather(*(each.greeted for each in protocols))
        crowd += protocols
    return crowd


async def _hold(host: str, port: int, count: int) -> None:
    crowd = await open_crowd(host, port, count)
    print(f"open {sum(not each.closed.done() for each in crowd)}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(f"closed {sum(each.closed.done() for each in crowd)}", flush=True)


def main() -> None:
    """Hold the connections that the arguments ask for."""
    host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    raise_open_files()
    uvloop.run(_hold(host, port, count))


if __name__ == "__main__":
    main()
