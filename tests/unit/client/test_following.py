"""Following a batch across lost connections."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from tests.unit.client.clock import Clock
from tradewind.client import following
from tradewind.client.calls import Calls
from tradewind.client.errors import NotFound, Unavailable
from tradewind.client.following import follow

END = 3


class Quiet(float):
    """Seconds for which a stream is open without anything coming."""


class Server:
    """Streams what the test tells it to; an exception breaks the stream off."""

    def __init__(self, *streams: list[int | Quiet | Exception], clock: Clock | None = None) -> None:
        self.patience = 5.0
        self._streams = list(streams)
        self._clock = clock or Clock()

    async def stream(self, method: object, request: object) -> AsyncGenerator[int, None]:
        for each in self._streams.pop(0):
            if isinstance(each, Exception):
                raise each
            if isinstance(each, Quiet):
                self._clock.now += each
            else:
                yield each


async def states(server: Server) -> list[int]:
    followed = follow(cast(Calls, server), lambda: cast(Any, None), None, lambda each: each, lambda each: each == END)
    return [state async for state in followed]


async def test_states_are_yielded_once_across_lost_connections() -> None:
    away = Unavailable("away")
    assert await states(Server([0, 1, away], [away], [1, 2], [2, END])) == [0, 1, 2, END]


async def test_errors_other_than_lost_connections_are_raised() -> None:
    with pytest.raises(NotFound):
        await states(Server([0, NotFound("gone")]))


async def test_lost_connection_is_raised_without_patience() -> None:
    server = Server([Unavailable("away")], [Unavailable("away")])
    server.patience = 0
    with pytest.raises(Unavailable):
        await states(server)


async def test_long_silence_does_not_use_up_patience(clock: Clock) -> None:
    away = Unavailable("away")
    quiet = Quiet(3600)
    server = Server([0, quiet, away], [away], [1, quiet, away], [quiet, away], [END], clock=clock)
    assert await states(server) == [0, 1, END]


async def test_server_that_restarts_again_and_again_is_not_away(clock: Clock) -> None:
    """Each time it says that it leaves: it was there, although the stream was neither long nor told of anything."""
    left: list[int | Quiet | Exception] = [Quiet(3), Unavailable("leaving", reason="DRAINING")]
    refused: list[int | Quiet | Exception] = [Unavailable("away")]
    assert await states(Server(*[left, refused] * 30, [END], clock=clock)) == [END]


async def test_silent_server_that_goes_away_is_waited_for_as_one_that_has_answered(clock: Clock) -> None:
    refused: list[int | Quiet | Exception] = [Quiet(4), Unavailable("away")]
    broken: list[int | Quiet | Exception] = [Quiet(3600), Unavailable("away")]
    assert await states(Server(broken, *[refused] * 14, [END], clock=clock)) == [END]


async def test_time_of_slow_refusals_uses_up_patience(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "PATIENCE", 10)
    refused: list[int | Quiet | Exception] = [Quiet(4), Unavailable("away")]
    with pytest.raises(Unavailable):
        await states(Server([0, Quiet(3600), Unavailable("away")], *[refused] * 3, [END], clock=clock))


async def test_stream_that_was_silent_for_long_is_reopened_soon(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", pause)
    silent: list[int | Quiet | Exception] = [Quiet(3600), Unavailable("away")]
    assert await states(Server([0, *silent], silent, silent, silent, silent, [END], clock=clock)) == [0, END]
    assert max(pauses) <= 0.05
