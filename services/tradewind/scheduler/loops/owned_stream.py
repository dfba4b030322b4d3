"""Keeps a stream to another service open, and subscribed to the partitions that this replica owns."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

import structlog

from tradewind.scheduler.ports.peers import PartitionStream, PeerUnavailable
from tradewind.scheduler.use_cases.own_partitions import OwnPartitions
from tradewind.server.backoff import Backoff

_MAX_WAITING = 20_000
"""The most items that may wait: beyond that, nothing is read until they have been taken."""
_BACKOFF_S = (0.1, 2.0)

_log = structlog.get_logger(__name__)

Item = TypeVar("Item")
OpenStream = TypeVar("OpenStream", bound=PartitionStream)


class OwnedStream(Generic[Item, OpenStream]):
    """Passes all items at hand to `work` together: items that arrive while it is busy go with the next call.

    When the stream breaks, it is opened again with backoff, and items that were not acknowledged come again.
    """

    def __init__(
        self,
        name: str,
        open_stream: Callable[[], OpenStream],
        receive: Callable[[OpenStream], Awaitable[tuple[list[Item], list[int]]]],
        work: Callable[[OpenStream, list[Item]], Awaitable[None]],
        ownership: OwnPartitions,
    ) -> None:
        self._name = name
        self._open_stream = open_stream
        self._receive = receive
        self._work = work
        self._ownership = ownership
        self._waiting: list[Item] = []
        self._arrived, self._room = asyncio.Event(), asyncio.Event()
        self._owned_changed = asyncio.Event()
        ownership.on_change(self._owned_changed.set)

    async def run(self) -> None:
        """Run forever."""
        backoff, failing = Backoff(*_BACKOFF_S), False
        while True:
            begun = asyncio.get_running_loop().time()
            try:
                await self._serve()
            except* PeerUnavailable as group:
                error = _first(group)
                (_log.debug if failing else _log.warning)("stream_lost", what=self._name, error=error.detail)
            except* Exception:
                _log.exception("stream_failed", what=self._name)
            failing = asyncio.get_running_loop().time() - begun <= 2 * _BACKOFF_S[1]
            if not failing:
                backoff.reset()
            await backoff.pause()

    async def _serve(self) -> None:
        while not self._ownership.epochs:
            self._owned_changed.clear()
            await self._owned_changed.wait()
        stream = self._open_stream()
        self._waiting = []
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._subscribe(stream))
                group.create_task(self._read(stream))
                group.create_task(self._process(stream))
        finally:
            await stream.close()

    async def _subscribe(self, stream: OpenStream) -> None:
        """Keep the subscriptions in line with the partitions owned."""
        subscribed: Mapping[int, int] = {}
        while True:
            self._owned_changed.clear()
            owned = self._ownership.epochs
            lost = [partition for partition in subscribed if partition not in owned]
            gained = {partition: epoch for partition, epoch in owned.items() if subscribed.get(partition) != epoch}
            subscribed = owned
            if lost:
                await stream.unsubscribe(lost)
            if gained:
                await stream.subscribe(gained)
            await self._owned_changed.wait()

    async def _read(self, stream: OpenStream) -> None:
        while True:
            items, ended = await self._receive(stream)
            if ended:
                self._ownership.lose(ended, f"a higher epoch has taken over the {self._name} stream")
            self._waiting += items
            if items:
                self._arrived.set()
            while len(self._waiting) > _MAX_WAITING:
                self._room.clear()
                await self._room.wait()

    async def _process(self, stream: OpenStream) -> None:
        while True:
            self._arrived.clear()
            if not self._waiting:
                await self._arrived.wait()
            items, self._waiting = self._waiting, []
            self._room.set()
            await self._work(stream, items)


def _first(group: BaseExceptionGroup[PeerUnavailable]) -> PeerUnavailable:
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    assert isinstance(first, PeerUnavailable)
    return first
