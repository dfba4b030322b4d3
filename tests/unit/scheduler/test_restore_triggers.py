"""What the trigger service was told last is compared with what it knows, when its store may have lost some of it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.scheduler.memory_scheduler import MemoryScheduler
from tradewind.scheduler.domain.flow_record import FlowRecord
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.ports.peers import PeerUnavailable
from tradewind.scheduler.ports.waking import Work
from tradewind.scheduler.use_cases.restore_triggers import AT_ONCE, RestoreTriggers
from tradewind.scheduler.use_cases.told_triggers import KEPT_S, ToldTriggers
from tradewind.server.ending import end_tasks
from tradewind.testing.virtual.loop import VirtualLoop

RUNNING = 100_000
KEPT = 10_000


class Triggers:
    """A trigger service that knows no trigger but these, and counts what it is asked."""

    def __init__(self, epochs: dict[str, int] | None = None) -> None:
        self.epochs = epochs or {}
        self.away = False
        self.faulty = ""
        self.asked: list[str] = []
        self.removed: list[tuple[str, int]] = []
        self.most_at_once = 0

    async def epochs_of(self, flow_ids: Sequence[str]) -> Mapping[str, int]:
        self.asked += flow_ids
        self.most_at_once = max(self.most_at_once, len(flow_ids))
        await asyncio.sleep(0.001)
        if self.away:
            raise PeerUnavailable("trigger service", "away")
        if self.faulty in flow_ids:
            raise ValueError("no such answer")
        return {flow_id: self.epochs[flow_id] for flow_id in flow_ids if flow_id in self.epochs}

    async def remove(self, flow_id: str, schedule_epoch: int) -> None:
        self.removed.append((flow_id, schedule_epoch))


@dataclass
class Records:
    """The flows on record, which is also their outbox."""

    flows: dict[str, FlowRecord]
    added: list[str]

    async def find(self, flow_ids: Sequence[str]) -> list[FlowRecord | None]:
        return [self.flows.get(flow_id) for flow_id in flow_ids]

    async def add(self, flow_id: str) -> None:
        self.added.append(flow_id)


class Scene:
    """Flows f0, f1, ... are on record, running, under schedule epoch 5."""

    def __init__(self, flow: FlowRecord, triggers: Triggers, running: int) -> None:
        self.told, self.triggers, self.woken = ToldTriggers(KEPT), triggers, list[str]()
        self.records = Records({f"f{at}": replace(flow, flow_id=f"f{at}") for at in range(running)}, [])
        flows: Any = self.records
        peer: Any = triggers
        self.restore = RestoreTriggers(self.told, flows, flows, peer, self.wake)

    def wake(self, work: Work, key: str, in_ms: int) -> None:
        assert (work, in_ms) == (Work.OUTBOX, 0)
        self.woken.append(key)

    def tell(self, flows: range, epoch: int = 5) -> None:
        for at in flows:
            self.told.note(f"f{at}", epoch)


def play(scenario: Callable[[Scene], Awaitable[None]], triggers: Triggers, running: int = 3) -> Scene:
    """Run a scenario under a virtual clock, and return what has become of the scene."""

    async def main() -> Scene:
        scheduler = MemoryScheduler()
        await scheduler.register()
        (flow,) = await scheduler.stores.flows.find(["f"])
        assert flow is not None
        flow = replace(flow, status=FlowStatus.RUNNING, next_execution_ms=1, schedule_epoch=5)
        scene = Scene(flow, triggers, running)
        restoring = asyncio.create_task(scene.restore.run())
        await scenario(scene)
        await end_tasks([restoring])
        return scene

    loop = VirtualLoop(1_800_000_000 * 10**9)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main())


def test_only_flows_told_of_in_the_last_minute_are_asked_for_and_sent_again_when_lost() -> None:
    async def scenario(scene: Scene) -> None:
        scene.tell(range(2_000, 3_000))
        await asyncio.sleep(KEPT_S + 1)
        scene.tell(range(50))
        scene.restore.suspect()
        await asyncio.sleep(1)

    scene = play(scenario, Triggers({f"f{at}": 5 for at in range(48)}), RUNNING)
    assert scene.triggers.asked == [f"f{at}" for at in range(50)]
    assert scene.records.added == scene.woken == ["f48", "f49"]


def test_however_many_are_told_of_they_are_asked_for_at_a_bounded_rate() -> None:
    seconds: list[float] = []

    async def scenario(scene: Scene) -> None:
        scene.tell(range(RUNNING))
        begun_s = asyncio.get_running_loop().time()
        scene.restore.suspect()
        while len(scene.triggers.asked) < KEPT:
            await asyncio.sleep(0.1)
        seconds.append(asyncio.get_running_loop().time() - begun_s)
        await asyncio.sleep(60)

    scene = play(scenario, Triggers({f"f{at}": 5 for at in range(RUNNING)}), RUNNING)
    assert scene.triggers.asked == [f"f{at}" for at in range(RUNNING - KEPT, RUNNING)]
    assert scene.triggers.most_at_once == AT_ONCE
    assert KEPT / seconds[0] <= 1_000
    assert scene.records.added == []


def test_suspicion_stays_while_the_service_is_away() -> None:
    async def scenario(scene: Scene) -> None:
        scene.tell(range(2))
        scene.triggers.away = True
        scene.restore.suspect()
        await asyncio.sleep(2 * KEPT_S)
        assert scene.records.added == []
        assert len(scene.triggers.asked) <= 2 * (2 * KEPT_S + 1)
        scene.triggers.away = False
        await asyncio.sleep(15)

    with capture_logs() as lines:
        assert play(scenario, Triggers()).records.added == ["f0", "f1"]
    assert [line["event"] for line in lines] == ["triggers_not_compared", "triggers_lost", "triggers_compared_again"]


def test_errors_with_ever_other_texts_are_one_incident(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(flow_ids: Sequence[str]) -> Mapping[str, int]:
        tried.extend(flow_ids)
        raise ConnectionError(f"connection {len(tried)} is closed")

    async def scenario(scene: Scene) -> None:
        monkeypatch.setattr(scene.triggers, "epochs_of", refused)
        scene.tell(range(1))
        scene.restore.suspect()
        await asyncio.sleep(5)

    tried: list[str] = []
    with capture_logs() as lines:
        play(scenario, Triggers(), 1)
    assert len(tried) >= 4
    assert [(line["event"], line["flows"]) for line in lines] == [("triggers_not_compared", 1)]


def test_flow_that_cannot_be_compared_does_not_hold_up_the_others() -> None:
    async def scenario(scene: Scene) -> None:
        scene.tell(range(2 * AT_ONCE))
        scene.triggers.faulty = "f0"
        scene.restore.suspect()
        await asyncio.sleep(2)

    with capture_logs():
        scene = play(scenario, Triggers(), 2 * AT_ONCE)
    assert scene.records.added == [f"f{at}" for at in range(AT_ONCE, 2 * AT_ONCE)]


def test_triggers_of_an_earlier_schedule_are_sent_again_and_those_of_gone_flows_are_removed() -> None:
    async def scenario(scene: Scene) -> None:
        flows = scene.records.flows
        flows["f1"] = replace(flows["f1"], status=FlowStatus.PAUSED)
        flows["ended"] = replace(flows["f2"], flow_id="ended", next_execution_ms=0)
        del flows["f2"]
        scene.tell(range(3))
        scene.told.note("ended", 5)
        scene.restore.suspect()
        await asyncio.sleep(1)

    scene = play(scenario, Triggers({"f0": 4, "f1": 4, "f2": 4, "ended": 5}))
    assert scene.records.added == ["f0", "f1"]
    assert scene.triggers.removed == [("f2", 5)]


def test_trigger_that_was_told_of_under_a_later_epoch_than_the_records_is_sent_again() -> None:
    async def scenario(scene: Scene) -> None:
        scene.tell(range(1), epoch=6)
        scene.tell(range(1, 3))
        scene.restore.suspect()
        await asyncio.sleep(1)

    scene = play(scenario, Triggers({"f0": 6, "f1": 6, "f2": 5}))
    assert scene.records.added == ["f0"], "f1 is being changed by somebody else"
