"""The sweep goes on until nothing is left, and through failures."""

import asyncio

from tests.waiting import until
from tradewind.registry.loops import SweepLoop


class Steps:
    """A sweeper whose steps take what the test says."""

    def __init__(self, *steps: int | Exception) -> None:
        self.steps = list(steps)
        self.taken: list[int] = []

    async def sweep(self) -> int:
        step = self.steps.pop(0) if self.steps else 0
        if isinstance(step, Exception):
            raise step
        self.taken.append(step)
        return step


async def test_sweeps_until_nothing_is_left_and_comes_back_after_a_failure() -> None:
    steps = Steps(2, 1, 0, ConnectionError("away"), 3, 0)
    loop = SweepLoop(steps, 0.01)
    loop.start()
    await until(lambda: steps.taken[:5] == [2, 1, 0, 3, 0], "all was swept, beyond the failure")
    await loop.stop()
    await loop.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_stopping_what_never_started_is_fine() -> None:
    await SweepLoop(Steps(), 1).stop()
