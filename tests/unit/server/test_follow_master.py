"""When the connection for messages is told which server is the master."""

import asyncio
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import pytest

from tradewind.server.redis import follow_master as module
from tradewind.server.redis.follow_master import follow_master

OLD, NEW = ("127.0.0.1", 1), ("127.0.0.1", 2)


class Sentinels:
    """Names masters one after the other, and notes what the subscriber is told."""

    def __init__(self, masters: Iterator[tuple[str, int]]) -> None:
        self._masters = masters
        self.told: list[tuple[str, int]] = []

    async def follow_master(self) -> tuple[str, int]:
        return next(self._masters)

    def leave_unless_at(self, master: tuple[str, int]) -> None:
        self.told.append(master)


async def test_subscriber_is_told_for_seconds_after_a_change_only(monkeypatch: pytest.MonkeyPatch) -> None:
    beats = iter(range(100))

    async def beat(_every_s: float) -> None:
        if next(beats, None) is None:
            raise asyncio.CancelledError

    monkeypatch.setattr(module, "beat", beat)
    sentinels: Any = Sentinels(chain(repeat(OLD, 40), repeat(NEW)))
    with pytest.raises(asyncio.CancelledError):
        await follow_master(sentinels, sentinels)
    assert sentinels.told == 5 * [OLD] + 5 * [NEW]
