"""The watch over readiness, without a server."""

import asyncio

import pytest

from tests.waiting import until
from tradewind.server.health import Health
from tradewind.server.metrics import REGISTRY


@pytest.mark.parametrize("turns", range(6))
async def test_drain_ends_the_watch_at_any_stage_of_a_check(turns: int) -> None:
    """The check finishes this many turns of the loop before the drain."""
    checks, gate = 0, asyncio.Event()

    async def check() -> str | None:
        nonlocal checks
        checks += 1
        if checks > 1:
            await gate.wait()
        return None

    health = Health([(["a"], check)], interval_s=0.001)
    await health.start()
    await until(lambda: checks == 2, "it checks again")
    gate.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await health.drain()


async def test_service_of_two_names_has_one_metric() -> None:
    """Alerts would come once for each name."""

    async def check() -> str | None:
        return "it is away"

    health = Health([(["tradewind.test.Own", "keda.Contract"], check)])
    await health.start()
    await health.drain()
    ready = [
        REGISTRY.get_sample_value("tradewind_ready", {"service": name})
        for name in ("tradewind.test.Own", "keda.Contract")
    ]
    assert ready == [0, None]
