"""The messages of one direction of a call, in order, as bytes."""

import asyncio
from collections import deque


class Gate:
    """When shut, it holds back everything that would pass, as a failed network does."""

    def __init__(self) -> None:
        self._open_event: asyncio.Event | None = None

    @property
    def is_shut(self) -> bool:
        """Whether nothing passes now."""
        return self._open_event is not None

    def shut(self) -> None:
        """Hold back everything from now on."""
        self._open_event = self._open_event or asyncio.Event()

    def open(self) -> None:
        """Let everything through, including what was held back."""
        open_event, self._open_event = self._open_event, None
        if open_event is not None:
            open_event.set()

    async def wait_until_open(self) -> None:
        """Return when it is open."""
        while self._open_event is not None:
            await self._open_event.wait()


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
            if self._gate.is_shut:
                await self._gate.wait_until_open()
            if self._messages:
                return self._messages.popleft()
            if self._closed:
                return None
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
