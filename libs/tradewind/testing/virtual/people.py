"""The client and the worker of a virtual stack: the real ones, over a channel in the process."""

import contextvars
from collections.abc import Sequence
from typing import Any

from tradewind.client import Client
from tradewind.client.addresses import Addresses
from tradewind.client.connection import Connection
from tradewind.testing.virtual.channel import LocalChannel
from tradewind.worker import Node, Worker
from tradewind.worker.threads import Call, ThreadPool

HERE = "here"


class VirtualClient(Client):
    def __init__(self, channel: LocalChannel) -> None:
        super().__init__(HERE)
        self._connection = Connection(
            Addresses.find(HERE), timeout=30.0, patience=10.0, credentials=None, open_channel=lambda *_: channel
        )


class InlinePool(ThreadPool):
    async def run(self, call: Call) -> Any:
        return contextvars.copy_context().run(call)


class VirtualWorker(Worker):
    def __init__(self, nodes: Sequence[Node[..., Any]], channel: LocalChannel) -> None:
        super().__init__(nodes, address=HERE, worker_id="worker", process_capacity=0)
        self.channel = channel

    def _open_channel(self, address: str) -> Any:
        return self.channel

    def _thread_pool(self) -> ThreadPool:
        return InlinePool(1)
