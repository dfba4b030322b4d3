"""When lapsed leases are taken back, and when they are spared."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.node_task_manager.conftest import Bench
from tests.waiting import until
from tradewind.node_task_manager.ports.work import Effects
from tradewind.node_task_manager.use_cases import reaper as module
from tradewind.node_task_manager.use_cases.reaper import Reaper
from tradewind.server.metrics import REGISTRY
from tradewind.server.stalls import StallDetector


def always_awake(running_since_s: float = 1000.0) -> Any:
    """Stand in for the detector of breaks: there has been none for `running_since_s` seconds."""
    return SimpleNamespace(running_since_s=lambda: running_since_s)


async def test_reaper_continues_until_nothing_is_left(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    reaped = [("a", "b"), ("c", "d"), ("e",), ()]

    async def reap(*, spare_ms: int, by_ms: int) -> Effects:
        return Effects(results=reaped.pop(0))

    monkeypatch.setattr(bench.store, "reap", reap, raising=False)
    assert not await Reaper(bench.dispatcher, bench.pool, StallDetector(), bench.clock, 0.0)()
    assert reaped == []


async def test_leases_of_lost_workers_are_counted_and_nothing_else(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = [Effects(results=("waited too long", "lapsed"), lost=1), Effects()]

    async def reap(*, spare_ms: int, by_ms: int) -> Effects:
        return ended.pop(0)

    def counted() -> float:
        return REGISTRY.get_sample_value("tradewind_leases_reaped_total") or 0

    monkeypatch.setattr(bench.store, "reap", reap, raising=False)
    before = counted()
    await Reaper(bench.dispatcher, bench.pool, StallDetector(), bench.clock, 0.0)()
    assert counted() - before == 1
    worker, line = await bench.connect()
    await bench.accepted(await bench.save("a"))
    await until(lambda: line.nodes == ["a"], "the node is handed out")
    bench.connections.close(worker)
    await until(lambda: counted() - before == 2, "its lease is taken back, since no other stream comes")


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


async def test_stream_that_broke_in_a_break_leaves_all_to_the_leases(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, line = await bench.connect("w1")
    other, _ = await bench.connect("w2", node_types=("other",))
    await bench.accepted(await bench.save("a"))
    await until(lambda: line.nodes == ["a"], "the node is handed out")
    with monkeypatch.context() as patch:
        patch.setattr(bench.stalls, "just_went_on", lambda: True)
        bench.connections.close(worker)
    bench.connections.close(other)
    await until(lambda: bench.store.count("held_by"), "the worker that left later is given up")
    assert await bench.store.held_by("w1")
