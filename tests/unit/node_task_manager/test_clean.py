"""Cleaning keeps its pace: steps until nothing is left, rests in between, the list of all node tasks once an hour."""

from typing import Any, cast

import pytest

from tradewind.node_task_manager.ports.node_tasks import Cleaned, NodeTaskStore
from tradewind.node_task_manager.use_cases.clean import Cleaner


class Steps:
    """A store whose steps of cleaning the test determines."""

    def __init__(self, *steps: Cleaned) -> None:
        self.steps = list(steps)
        self.places: list[int | None] = []
        self.rests: list[float] = []

    async def clean(self, cleaner: str, place: int | None) -> Cleaned:
        assert cleaner == "me"
        self.places.append(place)
        return self.steps.pop(0)

    async def rest(self, seconds: float) -> None:
        self.rests.append(seconds)

    def cleaner(self, every_s: float = 5.0, keys_per_second: int = 1000) -> Cleaner:
        return Cleaner(cast(NodeTaskStore, cast(Any, self)), "me", every_s, keys_per_second, self.rest)


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
