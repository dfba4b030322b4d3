"""The messages of one direction of a call, in order, as bytes."""

import asyncio
from collections import deque

import grpc


class Gate:
    """When shut, it holds back everything that would pass, as a failed network does."""

    def __init__(self) -> None:
        self._opened: asyncio.Event | None = None

    @property
    def shut(self) -> bool:
        """Whether nothing passes now."""
        return self._opened is not None

    def shut_it(self) -> None:
        """Hold back everything from now on."""
        self._opened = self._opened or asyncio.Event()

    def open_it(self) -> None:
        """Let everything through, including what was held back."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.set()

    async def passed(self) -> None:
        """Return when it is open."""
        while self._opened is not None:
            await self._opened.wait()


class Pipe:
    """Carries messages from one end to the other."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._messages: deque[bytes] = deque()
        self._closed = False
        self._waiting: asyncio.Future[None] | None = None

    def put(self, message: bytes) -> None:
        """Put in a message; does nothing once the pipe is closed."""
        if not self._closed:
            self._messages.append(message)
            self._wake()

    def close(self) -> None:
        """Accept no more messages; those inside can still be taken out."""
        self._closed = True
        self._wake()

    async def get(self) -> bytes | None:
        """Return the next message; None when the pipe is closed and empty."""
        while True:
            if self._gate.shut:
                await self._gate.passed()
            if self._messages:
                return self._messages.popleft()
            if self._closed:
                return None
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


EOF = grpc.aio.EOF
