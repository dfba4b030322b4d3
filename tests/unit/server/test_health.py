"""The watch over readiness, without a server."""

import asyncio

import pytest

from tests.waiting import until
from tradewind.server.health import Health


@pytest.mark.parametrize("turns", range(6))
async def test_a_drain_ends_the_watch_however_far_its_look_is(turns: int) -> None:
    """The check finishes this many turns of the loop before the drain."""
    looks, gate = 0, asyncio.Event()

    async def check() -> str | None:
        nonlocal looks
        looks += 1
        if looks > 1:
            await gate.wait()
        return None

    health = Health([(["a"], check)], interval_s=0.001)
    await health.start()
    await until(lambda: looks == 2, "it looks again")
    gate.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await health.drain()
