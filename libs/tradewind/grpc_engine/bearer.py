"""A channel whose every call carries a token; made once, so that a call costs one more pair of metadata and no more."""

from collections.abc import Callable
from typing import Any, Self

import grpc


def with_token(channel: grpc.aio.Channel, token: str | None) -> grpc.aio.Channel:
    """Return a channel whose calls carry `authorization: Bearer <token>`, the channel itself without a token."""
    return _TokenChannel(channel, token) if token else channel


class _Calls:
    """The calls of one method. Attributes are those of what it stands for."""

    def __init__(self, calls: Any, pair: tuple[str, str]) -> None:
        self._calls = calls
        self._pair = pair

    def __call__(self, *args: Any, metadata: Any = None, **options: Any) -> Any:
        return self._calls(*args, metadata=(*(metadata or ()), self._pair), **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._calls, name)


class _TokenChannel(grpc.aio.Channel):
    def __init__(self, channel: grpc.aio.Channel, token: str) -> None:
        self._channel = channel
        self._pair = ("authorization", f"Bearer {token}")

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
        return self._wrapped(self._channel.unary_unary, args, options)

    def unary_stream(self, *args: Any, **options: Any) -> Any:
        return self._wrapped(self._channel.unary_stream, args, options)

    def stream_unary(self, *args: Any, **options: Any) -> Any:
        return self._wrapped(self._channel.stream_unary, args, options)

    def stream_stream(self, *args: Any, **options: Any) -> Any:
        return self._wrapped(self._channel.stream_stream, args, options)

    def _wrapped(self, make: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> _Calls:
        return _Calls(make(*args, **options), self._pair)
