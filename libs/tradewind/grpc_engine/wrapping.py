"""A channel that wraps another one."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Self

import grpc


class WrappedChannel(grpc.aio.Channel):
    """Passes everything on except calls of methods, which subclasses wrap."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def __aenter__(self) -> Self:
        await self._channel.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> Any:
        return await self._channel.__aexit__(*raised)

    async def close(self, grace: float | None = None) -> None:
        await self._channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._channel.channel_ready()

    def unary_unary(self, *args: Any, **options: Any) -> Any:
        return self._wrapped(self._channel.unary_unary, *args, **options)

    def unary_stream(self, *args: Any, **options: Any) -> Any:
        return self._wrapped(self._channel.unary_stream, *args, **options)

    def stream_unary(self, *args: Any, **options: Any) -> Any:
        return self._wrapped(self._channel.stream_unary, *args, **options)

    def stream_stream(self, *args: Any, **options: Any) -> Any:
        return self._wrapped(self._channel.stream_stream, *args, **options)

    @abstractmethod
    def _wrapped(self, make: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Return a method of the wrapped channel, which `make` makes of a name and coders, as this channel calls it."""
