"""The client and the workers of a simulation: the real ones, over in-process channels."""

import contextvars
import functools
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from tradewind.client import Client
from tradewind.testing.virtual.channel import LocalChannel
from tradewind.testing.virtual.loop import running_loop
from tradewind.worker import Node, Worker
from tradewind.worker.scheduler_link import SchedulerLink
from tradewind.worker.secrets import SecretSource
from tradewind.worker.stream import WorkStream
from tradewind.worker.threads import Call, ThreadPool

_HERE = "simulation:7700"


class VirtualClient(Client):
    """A client of the simulation."""

    def __init__(self, channel: LocalChannel, user_id: str = "default") -> None:
        super().__init__(_HERE, user_id=user_id)
        self._channel = channel

    def _open_channel(self, address: str, security: object) -> Any:
        return self._channel


class _Stream(WorkStream):
    """Knows no pauses: nothing is under way when time leaps."""

    def _was_paused(self) -> bool:
        return False


class VirtualWorker(Worker):
    """A worker of the simulation; runs everything on the loop."""

    _stream_type = _Stream

    def __init__(
        self,
        nodes: Sequence[Node[..., Any]],
        worker_id: str,
        channel: LocalChannel,
        *,
        secrets: SecretSource | None = None,
    ) -> None:
        super().__init__(nodes, address=_HERE, worker_id=worker_id, process_capacity=0, secrets=secrets)
        self.channel = channel

    def _open_channel(self, address: str) -> Any:
        return self.channel

    def _thread_pool(self) -> ThreadPool:
        return _Inline(1)

    def _loop_watch(self) -> None:
        return None

    def _memories(self, channel: Any) -> SchedulerLink:
        return _Memories(channel)


class _Inline(ThreadPool):
    """Runs calls at once."""

    async def run(self, call: Call) -> Any:
        return running_loop().run_plain(functools.partial(contextvars.copy_context().run, call))


class _Memories(SchedulerLink):
    """Refuses a caller that would wait for the loop while blocking it."""

    def __init__(self, channel: Any) -> None:
        super().__init__(channel)
        self._virtual_loop = running_loop()

    def ask(self, method: str, request: bytes) -> "Future[bytes]":
        if self._virtual_loop.in_plain_code:
            raise RuntimeError(
                "a plain function cannot use the memory of its cycle or flow in a simulation, where it runs on the "
                "event loop: make the node an async def, and use the memory there"
            )
        return super().ask(method, request)
