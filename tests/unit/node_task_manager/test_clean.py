"""Cleaning keeps its pace: steps until nothing is left, rests in between, the list of all node tasks once an hour."""

from typing import Any, cast

import pytest
from msgspec.structs import replace

from tradewind.node_task_manager.ports.events import FIRST, NewEvent, OpenEvent
from tradewind.node_task_manager.ports.node_tasks import Cleaned, NodeTaskStore
from tradewind.node_task_manager.use_cases.clean import Cleaner


class Steps:
    """A store whose steps of cleaning the test determines."""

    def __init__(self, *steps: Cleaned) -> None:
        self.steps = list(steps)
        self.places: list[int | None] = []
        self.recalls: list[int | None] = []
        self.rests: list[float] = []
        self.published: list[NewEvent] = []

    async def clean(self, cleaner: str, place: int | None, recall: int | None) -> Cleaned:
        assert cleaner == "me"
        self.places.append(place)
        self.recalls.append(recall)
        return self.steps.pop(0)

    async def rest(self, seconds: float) -> None:
        self.rests.append(seconds)

    def cleaner(self, every_s: float = 5.0, keys_per_second: int = 1000) -> Cleaner:
        return Cleaner(
            cast(NodeTaskStore, cast(Any, self)), "me", every_s, keys_per_second, self.published.extend, self.rest
        )


MORE = Cleaned(leads=True, keys=500, more=True)
DONE = Cleaned(leads=True)


async def test_cleaner_rests_to_respect_its_key_rate() -> None:
    steps = Steps(MORE, MORE, DONE)
    await steps.cleaner()()
    assert len(steps.rests) == 2
    assert all(rest >= 0.5 for rest in steps.rests)


async def test_no_rest_outlasts_the_lease() -> None:
    steps = Steps(MORE, DONE)
    await steps.cleaner(every_s=2, keys_per_second=100)()
    assert steps.rests == [2]


async def test_cleaner_rests_less_the_further_it_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    behind = [Cleaned(leads=True, keys=100, more=True, behind=ms) for ms in (0, 30_000, 60_000)]
    steps = Steps(*behind, DONE)
    clock = "tradewind.node_task_manager.use_cases.clean.time.monotonic"
    monkeypatch.setattr(clock, lambda: float(len(steps.places)))
    await steps.cleaner()()
    assert steps.rests == [4, 2, 0.1]


async def test_cleaner_that_is_far_behind_takes_steps_together() -> None:
    behind = Cleaned(leads=True, keys=100, more=True, behind=60_001)
    steps = Steps(replace(behind, place=7), behind, *[behind] * 4, *[DONE] * 4)
    await steps.cleaner()()
    assert steps.places == [0, 7, *[None] * 8]
    assert steps.rests == [0.1, 0.1, 0.4]


async def test_replica_that_does_not_lead_takes_one_step() -> None:
    steps = Steps(Cleaned(leads=False))
    await steps.cleaner()()
    assert (len(steps.places), steps.rests) == (1, [])


async def test_list_is_scanned_hourly_and_resumes_where_it_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [7.0]
    monkeypatch.setattr("tradewind.node_task_manager.use_cases.clean.time.monotonic", lambda: now[0])
    at_100 = Cleaned(leads=True, place=100, more=True)
    # The first one does not count, because it waited for leases.
    steps = Steps(Cleaned(leads=True, waits=True), at_100, MORE, DONE, DONE, DONE)
    cleaner = steps.cleaner()
    for passed in (0, 5, 5, 3600):
        now[0] += passed
        await cleaner()
    assert steps.places == [0, 0, 100, None, None, 0]


async def test_open_runs_are_recalled_at_the_start_and_after_each_outage() -> None:
    waiting, at_7 = Cleaned(leads=True, waits=True), Cleaned(leads=True, recall=7, more=True)
    steps = Steps(Cleaned(leads=False), waiting, at_7, DONE, DONE, DONE)
    cleaner = steps.cleaner()
    for _ in range(4):
        await cleaner()
    assert steps.recalls == [0, 0, 0, 7, None]
    cleaner.store_was_away()
    await cleaner()
    assert steps.recalls[5:] == [0]


async def test_outage_during_a_recall_leads_to_another() -> None:
    steps = Steps(MORE, DONE, DONE, DONE)
    cleaner = steps.cleaner()

    async def lose_store(seconds: float) -> None:
        cleaner.store_was_away()

    steps.rest = lose_store  # type: ignore[method-assign]
    cleaner = steps.cleaner()
    for _ in range(3):
        await cleaner()
    assert steps.recalls == [0, None, 0, None]


async def test_questions_to_the_scheduler_are_published_at_once() -> None:
    question = NewEvent(FIRST, OpenEvent("1-1", 3, 1, "flow:0:0", "r0", "0", "ann", 0))
    steps = Steps(Cleaned(leads=True, more=True, events=(question,)), DONE)
    await steps.cleaner()()
    assert steps.published == [question]
