"""A proxy for the store that watches for a mark, such as a script's digest, and then holds back calls or answers."""

import asyncio
from types import TracebackType
from typing import Literal, Self

SIZE = 64 * 1024


class StoreProxy:
    """Passes bytes between a node task manager and a store on another port of this machine.

    Once a call contains `mark`, `mark_seen` is set and nothing more goes through: with "calls" not even that call, with
    "answers" no answer to it.
    """

    def __init__(self, port: int, mark: str, hold_back: Literal["calls", "answers"]) -> None:
        self._store = port
        self._mark = mark.encode()
        self._hold_back = hold_back
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.mark_seen = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        from_store, to_store = await asyncio.open_connection("127.0.0.1", self._store)
        try:
            await asyncio.gather(self._forward_calls(reader, to_store), self._forward_answers(from_store, writer))
        except OSError:
            # One side was killed; the other one sees its connection closed.
            pass
        finally:
            to_store.close()
            writer.close()

    async def _forward_calls(self, reader: asyncio.StreamReader, to_store: asyncio.StreamWriter) -> None:
        before = b""
        while data := await reader.read(SIZE):
            if self._mark in before + data:
                self.mark_seen.set()
            before = data[-len(self._mark) :]
            if not (self.mark_seen.is_set() and self._hold_back == "calls"):
                to_store.write(data)
        to_store.close()

    async def _forward_answers(self, from_store: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await from_store.read(SIZE):
            if not self.mark_seen.is_set():
                writer.write(data)
        writer.close()
