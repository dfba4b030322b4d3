"""Workers that are called, in a life: where they listen, and the connections to there."""

import asyncio
from collections.abc import Sequence
from contextvars import Context
from functools import partial
from types import SimpleNamespace
from typing import Any

import grpc

from tradewind.api.worker.v1.worker_service_pb2_grpc import add_WorkerServiceServicer_to_server
from tradewind.server.errors import ErrorTable
from tradewind.testing.virtual.channel import LocalChannel
from tradewind.testing.virtual.participants import VirtualWorker
from tradewind.testing.virtual.pipe import Pipe
from tradewind.testing.virtual.server import LocalServer, Status
from tradewind.worker import Node
from tradewind.worker.called import CalledLink

READY, AWAY = grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE


class Address(LocalServer):
    """Where a worker listens, or nobody does; `channels` are those that lead here."""

    def __init__(self) -> None:
        super().__init__()
        self.channels: list[WorkerChannel] = []
        self._worker: LocalServer | None = None
        self._link: CalledLink | None = None
        self._opened = asyncio.Event()

    def open(self, link: CalledLink) -> None:
        """Let a worker listen here."""
        self._link = link
        self._worker = LocalServer()
        bind = partial(add_WorkerServiceServicer_to_server, link)
        self._worker.bind([SimpleNamespace(errors=ErrorTable(), bind=bind)])
        self._opened.set()

    def close(self, link: CalledLink | None = None) -> None:
        """Let nobody listen here, or no longer this worker: all connections are lost."""
        if link not in (None, self._link):
            return
        self._worker = self._link = None
        self._opened.clear()
        for channel in self.channels:
            channel.break_off()

    async def wait_until_open(self) -> None:
        await self._opened.wait()

    async def serve(self, method: str, request: bytes | None, incoming: Pipe, outgoing: Pipe) -> Status:
        if self._worker is None:
            return Status(grpc.StatusCode.UNAVAILABLE, "connection refused")
        return await self._worker.serve(method, request, incoming, outgoing)


class WorkerChannel(LocalChannel):
    """A channel to where a worker listens, which knows whether it is connected."""

    def __init__(self, address: Address, context: Context) -> None:
        super().__init__(address, context)
        address.channels.append(self)
        self._address = address
        self._state = AWAY
        self._changed = asyncio.Event()

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._state

    async def wait_for_state_change(self, last: grpc.ChannelConnectivity) -> None:
        while self._state is last:
            await self._changed.wait()

    async def channel_ready(self) -> None:
        await self._address.wait_until_open()
        await self.gate.wait_until_open()
        self._change(READY)

    def break_off(self, methods: str = "") -> None:
        super().break_off(methods)
        if not methods:
            self._change(AWAY)

    def _change(self, state: grpc.ChannelConnectivity) -> None:
        self._state = state
        self._changed.set()
        self._changed = asyncio.Event()


class _Link(CalledLink):
    def __init__(self, address: Address, *args: Any) -> None:
        super().__init__(*args)
        self._address = address

    async def start(self, listen: str) -> int:
        self._address.open(self)
        self.connected.set()
        return 1

    async def stop(self) -> None:
        self._address.close(self)
        await super().stop()


class CalledVirtualWorker(VirtualWorker):
    """A worker that is called at an address."""

    def __init__(
        self, nodes: Sequence[Node[..., Any]], worker_id: str, channel: LocalChannel, address: Address, **options: Any
    ) -> None:
        super().__init__(nodes, worker_id, channel, **options)
        self._listen = f"{worker_id}:1"
        self._called_type = partial(_Link, address)  # type: ignore[assignment]
