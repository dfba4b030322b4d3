"""Waiting for the ends of cycles: those are found, too, of which no message tells or that other replicas end."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.scheduler.memory_scheduler import MemoryScheduler, event
from tests.waiting import until
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.use_cases import await_ends
from tradewind.scheduler.use_cases.await_ends import AwaitEnds
from tradewind.scheduler.use_cases.change_hub import ChangeHub
from tradewind.scheduler.use_cases.end_waiters import EndWaiters


class Shaky:
    """Reads states; is away when it is asked for the second time."""

    def __init__(self, scheduler: MemoryScheduler) -> None:
        self._states = scheduler.stores.states
        self.asked = 0

    async def load_many(self, runs: Sequence[RunName]) -> list[ChainState | None]:
        self.asked += 1
        if self.asked == 2:
            raise ConnectionError("the store is away")
        return await self._states.load_many(runs)


async def test_end_of_which_no_message_tells_is_found_by_a_later_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(await_ends, "_POLL_S", 0.001)
    scheduler = MemoryScheduler()
    await scheduler.register()
    state = (await scheduler.run()).state
    states = Shaky(scheduler)
    reads: Any = states
    unused_hub: Any = None
    ends = AwaitEnds(EndWaiters(), unused_hub, reads, lambda _partition: True)
    with capture_logs() as logged:
        waiting = asyncio.ensure_future(ends.end_of(state, 30))
        await until(lambda: states.asked > 2, "it checks again although the store was away")
        await scheduler.fold([event(state)], {})
        assert (await waiting).status is CycleStatus.COMPLETED
    assert [each["event"] for each in logged] == ["ends_not_read"]
    await until(lambda: ends._poller is None, "nobody waits, so nothing is checked")


@pytest.mark.parametrize("ends_before", [True, False])
async def test_end_of_a_run_whose_partition_changes_hands_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch, ends_before: bool
) -> None:
    monkeypatch.setattr(await_ends, "_POLL_S", 3600)
    scheduler = MemoryScheduler()
    await scheduler.register()
    state = (await scheduler.run()).state
    stores, owned = scheduler.stores, True
    hub = ChangeHub(stores.changes, stores.cycles, stores.states)
    ends = AwaitEnds(EndWaiters(), hub, stores.states, lambda _partition: owned)
    waiting = asyncio.ensure_future(ends.end_of(state, 30))
    await until(lambda: ends._poller is not None, "it waits")
    owned = False
    if not ends_before:
        ends.partitions_changed()
        await until(lambda: not ends._following, "it listens to what others do")
    # What another replica ends tells nobody who waits here.
    await scheduler.fold([event(state)], {})
    if ends_before:
        ends.partitions_changed()
    assert (await waiting).status is CycleStatus.COMPLETED
    ends.partitions_changed()
    await until(lambda: not hub._listeners, "nobody waits, so nothing is listened to")
    await ends.stop()
