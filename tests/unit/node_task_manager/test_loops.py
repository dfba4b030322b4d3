"""How often the node task manager does its periodic work."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.node_task_manager.conftest import Bench
from tests.waiting import until
from tradewind.node_task_manager import loops as module
from tradewind.node_task_manager.loops import Loops


class Busy:
    """Caches that always have something to do."""

    async def maintain(self) -> bool:
        return False


class Rests:
    """Stands in for beats: records their periods, and lets time pass at once."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    async def __call__(self, every_s: float) -> None:
        self.taken.append(every_s)
        await asyncio.sleep(0)


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> Rests:
    rests = Rests()
    monkeypatch.setattr(module, "beat", rests)
    return rests


async def nothing() -> None:
    """Do nothing."""


def loops_of(bench: Bench, lease_s: float = 30.0, load_config: Callable[[], Awaitable[None]] = nothing) -> Loops:
    caches: Any = Busy()
    return Loops(bench.dispatchers, bench.pool, lease_s, load_config, caches, (), bench.clock, poll_s=5.0)


async def test_idle_step_runs_less_often_until_it_has_work(bench: Bench, rests: Rests) -> None:
    answers: list[bool | Exception] = [False, True, True, ConnectionError("away"), False]

    async def step() -> bool:
        answer = answers.pop(0) if answers else False
        if isinstance(answer, Exception):
            raise answer
        return answer

    loops = loops_of(bench)
    loops.repeat(step, 7.0, 70.0)
    loops.start()
    await until(lambda: not answers, "every step was taken")
    await loops.stop()
    assert [each for each in rests.taken if each in (7.0, 70.0)][:6] == [7.0, 7.0, 70.0, 70.0, 7.0, 7.0]


@pytest.mark.parametrize(("lease_s", "longest_s"), [(30.0, 2.5), (4.0, 2.0), (0.5, 1.0)])
async def test_idle_reaper_runs_less_often_within_bounds(
    bench: Bench, rests: Rests, lease_s: float, longest_s: float
) -> None:
    loops = loops_of(bench, lease_s)
    loops.start()
    await until(lambda: rests.taken.count(1.0) > 50, "all has been done again and again")
    await loops.stop()
    assert max(each for each in rests.taken if each != 5.0) == longest_s


async def test_reaper_runs_every_second_while_leases_are_held(bench: Bench, rests: Rests) -> None:
    plan = await bench.save("a")
    await bench.connect()
    await bench.accepted(plan)
    loops = loops_of(bench)
    loops.start()
    await until(lambda: rests.taken.count(1.0) > 50, "all has been done again and again")
    await loops.stop()
    assert set(rests.taken) == {1.0, 5.0}


async def test_configuration_is_reread_periodically(bench: Bench, rests: Rests) -> None:
    read: list[str] = []

    async def load_config() -> None:
        read.append("config")

    loops = loops_of(bench, load_config=load_config)
    loops.start()
    await until(lambda: len(read) > 2, "it is read again and again")
    await loops.stop()


async def test_a_store_that_hangs_delays_the_end_once_for_all_shards(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LEAVE_S", 600.0)
    asked: list[str] = []
    answered = asyncio.Event()

    class Cleaner:
        every_s = 5.0

        async def __call__(self) -> None:
            """Do nothing."""

        async def leave(self) -> None:
            asked.append("leave")
            await answered.wait()

    cleaners: Any = (Cleaner(), Cleaner())
    caches: Any = Busy()
    loops = Loops(bench.dispatchers, bench.pool, 30.0, nothing, caches, cleaners, bench.clock, poll_s=5.0)
    loops.start()
    stopping = asyncio.create_task(loops.stop())
    await until(lambda: len(asked) == 2, "both are asked before either has answered")
    answered.set()
    await stopping
