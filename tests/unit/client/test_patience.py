"""How long a call is repeated while its server is away."""

import asyncio

import pytest

from tradewind.client import Unavailable
from tradewind.client import calls as calls_module
from tradewind.client.calls import Calls


async def test_patience_starts_when_server_goes_away_not_with_call() -> None:
    """A call that waits may already have waited for longer than the patience."""
    calls = Calls("gate:7700", timeout=30, patience=0.5)
    asked = 0

    async def once() -> str:
        nonlocal asked
        asked += 1
        if asked == 1:
            await asyncio.sleep(0.6)
            raise Unavailable("away")
        return "done"

    assert await calls.repeated(once) == "done"


async def test_patience_lasts_from_the_first_failure_and_a_call_may_have_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_module, "_BACKOFF_S", (0.01, 0.02))
    asked = 0

    async def once() -> str:
        nonlocal asked
        asked += 1
        raise Unavailable("away")

    impatient, patient = (Calls("gate:7700", timeout=30, patience=patience) for patience in (0.0, 0.2))
    async with asyncio.timeout(10):
        for calls, least, first in ((impatient, 0.0, True), (patient, 0.0, False), (impatient, 0.2, False)):
            asked = 0
            with pytest.raises(Unavailable):
                await calls.repeated(once, patience=least)
            assert (asked == 1) is first
