"""What was due before the store was lost begins again, as soon as the store is back."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from tests.waiting import until
from tradewind.scheduler.domain.due import DueEvent, DueFlow
from tradewind.scheduler.loops import lost_due
from tradewind.scheduler.loops.lost_due import LostDue
from tradewind.scheduler.ports.owning import NOT_OWNER, Epochs
from tradewind.scheduler.use_cases.background import Background
from tradewind.scheduler.use_cases.begin_due import BegunDue


class Begins:
    """Fails for the first `away` calls."""

    def __init__(self, away: int = 0) -> None:
        self.away = away
        self.asked: list[DueFlow] = []

    async def __call__(self, due: Sequence[DueFlow], epochs: Epochs) -> BegunDue:
        assert epochs is NOT_OWNER
        if self.away:
            self.away -= 1
            raise ConnectionError("the store is away")
        self.asked += due
        return BegunDue([], [], [])


def due_at(planned_ms: int, payload: str = "") -> DueFlow:
    event = DueEvent("e", "order", payload) if payload else None
    return DueFlow("f", planned_ms, planned_ms - 5, 1, f"t{planned_ms}", event=event)


@asynccontextmanager
async def lost_due_over(begins: Begins) -> AsyncIterator[LostDue]:
    lost = LostDue(cast(Any, begins), cast(Any, None), Background())
    running = asyncio.ensure_future(lost.run())
    try:
        yield lost
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_due_flows_begin_again_once_the_store_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_due, "_RETRY_S", 0.001)
    begins = Begins(away=2)
    async with lost_due_over(begins) as lost:
        lost.note([due_at(at) for at in range(1000, 1700)])
        lost.store_lost()
        lost.store_lost()
        await until(lambda: len(begins.asked) == 700, "all have begun again")
        # They are judged as they were, not as what is due ahead of its time.
        assert [(flow.planned_ms, flow.now_ms) for flow in begins.asked] == [(at, at) for at in range(1000, 1700)]
        lost.store_lost()
        lost.note([due_at(5000)])
        lost.store_lost()
        await until(lambda: len(begins.asked) == 701, "only what came later begins again")


@pytest.mark.parametrize(
    ("limits", "due", "left"),
    [
        ({"_MOST": 3}, [due_at(at) for at in range(5)], [2, 3, 4]),
        ({"_MOST_BYTES": 25}, [due_at(at, "x" * 10) for at in range(5)], [3, 4]),
        ({"_RECENT_S": -1}, [due_at(7)], []),
    ],
)
async def test_memory_is_bounded(
    monkeypatch: pytest.MonkeyPatch, limits: dict[str, int], due: list[DueFlow], left: list[int]
) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(lost_due, name, value)
    begins = Begins()
    async with lost_due_over(begins) as lost:
        lost.note(due)
        lost.store_lost()
        lost.note([])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [flow.planned_ms for flow in begins.asked] == left
