"""A channel that adds a token to every call; made once, so each call costs only one more pair of metadata."""

import os
from collections.abc import Callable
from typing import Any

import grpc

from tradewind.grpc_engine.wrapping import WrappedChannel

TOKEN_VARIABLE = "TRADEWIND_TOKEN"


def token_of(given: str | None) -> str | None:
    """Return the given token, or else the value of TRADEWIND_TOKEN; None without either.

    Raises TypeError for a token that is not text, ValueError for characters that no token has and no call can carry.
    """
    token = given or os.environ.get(TOKEN_VARIABLE) or None
    if token is not None and not isinstance(token, str):
        raise TypeError(f"a token must be text, is of type {type(token).__name__}")
    if token is not None and not (token.isascii() and token.isprintable()):
        whose = "the token" if given else TOKEN_VARIABLE
        raise ValueError(f"{whose} must be one line of ASCII characters, such as tw_05_...: is it complete, and alone?")
    return token


def with_token(channel: grpc.aio.Channel, token: str | None) -> grpc.aio.Channel:
    """Return a channel whose calls carry `authorization: Bearer <token>`; without a token, the channel itself."""
    return _TokenChannel(channel, token) if token else channel


class _Calls:
    """The calls of one method. Attributes are those of the wrapped object."""

    def __init__(self, calls: Any, pair: tuple[str, str]) -> None:
        self._calls = calls
        self._pair = pair

    def __call__(self, *args: Any, metadata: Any = None, **options: Any) -> Any:
        return self._calls(*args, metadata=(*(metadata or ()), self._pair), **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._calls, name)


class _TokenChannel(WrappedChannel):
    def __init__(self, channel: grpc.aio.Channel, token: str) -> None:
        super().__init__(channel)
        self._pair = ("authorization", f"Bearer {token}")

    def _wrapped(self, make: Callable[..., Any], *args: Any, **options: Any) -> _Calls:
        return _Calls(make(*args, **options), self._pair)
