"""How often the node task manager does its periodic work."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.node_task_manager.conftest import Bench
from tests.waiting import until
from tradewind.node_task_manager import loops as module
from tradewind.node_task_manager.loops import Loops, Reaper
from tradewind.node_task_manager.ports.work import Effects
from tradewind.server.stalls import StallDetector


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


def always_awake(running_since_s: float = 1000.0) -> Any:
    """Stand in for the detector of breaks: there has been none for `running_since_s` seconds."""
    return SimpleNamespace(running_since_s=lambda: running_since_s)


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


async def test_reaper_continues_until_nothing_is_left(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    reaped = [("a", "b"), ("c", "d"), ("e",), ()]

    async def reap(*, spare_ms: int, by_ms: int) -> Effects:
        return Effects(results=reaped.pop(0))

    monkeypatch.setattr(bench.store, "reap", reap, raising=False)
    assert not await Reaper(bench.dispatcher, bench.pool, StallDetector(), bench.clock, 0.0)()
    assert reaped == []


async def test_leases_are_spared_for_one_lease_after_an_outage(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    now, away, spared = 1000.0, False, list[int]()

    async def reap(*, spare_ms: int, by_ms: int) -> Effects:
        if away:
            raise ConnectionError("away")
        spared.append(spare_ms)
        return Effects()

    monkeypatch.setattr(bench.store, "reap", reap, raising=False)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    reaper = Reaper(bench.dispatcher, bench.pool, always_awake(), bench.clock, 30.0)

    async def reap_at(at: float) -> None:
        nonlocal now
        now = at
        await reaper()

    await reap_at(1031)
    away = True
    for at in (1040, 1041, 1050):
        with pytest.raises(ConnectionError):
            await reap_at(at)
    away = False
    for at in (1060, 1089, 1091):
        await reap_at(at)
    assert spared == [0, 30_000, 1_000, 0]


async def test_late_store_spares_leases_like_an_outage(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    now, late, spared = 1031.0, True, list[tuple[int, int]]()

    async def reap(*, spare_ms: int, by_ms: int) -> Effects:
        nonlocal now
        spared.append((spare_ms, by_ms - bench.clock.now_ms()))
        now += 4 if late else 0
        return Effects(late=late)

    monkeypatch.setattr(bench.store, "reap", reap, raising=False)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    reaper = Reaper(bench.dispatcher, bench.pool, always_awake(), bench.clock, 30.0)

    await reaper()
    late, now = False, 1036
    await reaper()
    assert spared == [(0, 2_000), (29_000, 2_000)]


async def test_leases_are_spared_for_one_lease_after_a_break(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    spared = list[int]()

    async def reap(*, spare_ms: int, by_ms: int) -> Effects:
        spared.append(spare_ms)
        return Effects()

    monkeypatch.setattr(bench.store, "reap", reap, raising=False)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 2000.0))
    for since_s in (1000.0, 1990.0, 2000.0):
        await Reaper(bench.dispatcher, bench.pool, always_awake(since_s), bench.clock, 30.0)()
    assert spared == [0, 20_000, 30_000]
