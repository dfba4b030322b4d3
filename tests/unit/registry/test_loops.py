"""The sweep goes on until nothing is left, even after failures."""

from tests.waiting import until
from tradewind.registry.loops import sweep_loop
from tradewind.server.side_tasks import SideTasks


class Steps:
    """A sweeper whose steps take what the test determines."""

    def __init__(self, *steps: int | Exception) -> None:
        self.steps = list(steps)
        self.taken: list[int] = []

    async def sweep(self) -> int:
        step = self.steps.pop(0) if self.steps else 0
        if isinstance(step, Exception):
            raise step
        self.taken.append(step)
        return step


async def test_sweep_loop_sweeps_until_nothing_is_left_and_survives_failures() -> None:
    steps = Steps(2, 1, 0, ConnectionError("away"), 3, 0)
    tasks = SideTasks()
    tasks.begin(sweep_loop(steps, 0.01))
    await until(lambda: steps.taken[:5] == [2, 1, 0, 3, 0], "all was swept, beyond the failure")
    await tasks.end()
