"""Following a batch across lost connections."""

from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from tradewind.client.calls import Calls
from tradewind.client.errors import NotFound, Unavailable
from tradewind.client.following import follow

END = 3


class Server:
    """Streams what it is told to; an exception breaks the stream off."""

    def __init__(self, *streams: list[int | Exception]) -> None:
        self.patience = 5.0
        self._streams = list(streams)

    async def stream(self, method: object, request: object) -> AsyncGenerator[int, None]:
        for each in self._streams.pop(0):
            if isinstance(each, Exception):
                raise each
            yield each


async def states(server: Server) -> list[int]:
    followed = follow(cast(Calls, server), cast(Any, None), None, lambda each: each, lambda each: each == END)
    return [state async for state in followed]


async def test_states_are_told_once_though_connections_are_lost() -> None:
    away = Unavailable("away")
    assert await states(Server([0, 1, away], [away], [1, 2], [2, END])) == [0, 1, 2, END]


async def test_what_is_no_loss_of_connection_is_raised() -> None:
    with pytest.raises(NotFound):
        await states(Server([0, NotFound("gone")]))


async def test_patience_ends() -> None:
    server = Server([Unavailable("away")], [Unavailable("away")])
    server.patience = 0
    with pytest.raises(Unavailable):
        await states(server)
