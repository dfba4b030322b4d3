"""Progress and log lines: written later, kept across short outages, and bounded."""

import asyncio

import pytest

from tests.unit.node_task_manager.faulty_store import FaultyStore, always
from tests.waiting import until
from tradewind.node_task_manager.ports.reading import Line, Progress
from tradewind.node_task_manager.use_cases import notes
from tradewind.node_task_manager.use_cases.notes import Notes
from tradewind.node_task_manager.use_cases.shard import Shard
from tradewind.server.clock import ManualClock

LINE = Line("flow:0:0:a", 1, "n1", "INFO", "node", "hm", 1)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FaultyStore:
    monkeypatch.setattr(notes, "_PAUSES_S", (0.001,) * 20)
    return FaultyStore(ManualClock())


@pytest.fixture
def recorder(store: FaultyStore) -> Notes:
    return Notes({0: Shard(0, store, store, store, store, store, store)})


async def test_lines_wait_while_store_is_unavailable(store: FaultyStore, recorder: Notes) -> None:
    store.refused["record"] = always
    recorder.add([(0, Progress("flow:0:0:a", "n1", 5, ""))], [(0, LINE)])
    await until(lambda: store.count("record") > 2, "it is tried again")
    del store.refused["record"]
    await recorder.close()
    assert recorder.dropped == 0


async def test_lines_that_cannot_be_stored_are_dropped_and_counted(store: FaultyStore, recorder: Notes) -> None:
    store.refused["record"] = always
    recorder.add([], [(0, LINE)])
    await until(lambda: recorder.dropped == 1, "the line is given up")
    await recorder.close()


async def test_lines_over_the_byte_limit_are_dropped_and_counted(
    store: FaultyStore, recorder: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "_MAX_WAITING_BYTES", 10)
    store.unanswered["record"] = asyncio.Event()
    recorder.add([], [(0, LINE)] * 8)
    assert recorder.dropped == 3
    store.unanswered["record"].set()
    await until(lambda: store.count("record"), "the lines are written")
    del store.unanswered["record"]
    await until(lambda: not recorder._bytes, "there is room again")
    recorder.add([], [(0, LINE)])
    await recorder.close()
    assert recorder.dropped == 3


async def test_close_does_not_wait_for_unavailable_store(
    store: FaultyStore, recorder: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "_PAUSES_S", (60.0, 60.0))
    store.refused["record"] = always
    recorder.add([], [(0, LINE)])
    await until(lambda: store.count("record"), "it is tried")
    await asyncio.wait_for(recorder.close(), 20)
    assert (recorder.dropped, store.count("record")) == (1, 2)
