"""Open runs and the outbox in memory."""

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from tradewind.scheduler.domain.cycle_status import is_terminal
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.ports.due_sets import DueCheck
from tradewind.scheduler.stores.memory.data import Data
from tradewind.server.partitions import PARTITIONS, partition_of

Member = TypeVar("Member", RunName, str)


_NONE: DueCheck[Any] = DueCheck((), None)


def _check(members: Mapping[Member, int], now: int, limit: int) -> DueCheck[Member]:
    if not members:
        return _NONE
    ordered = sorted(members, key=lambda member: (members[member], str(member)))
    due = tuple(member for member in ordered[:limit] if members[member] <= now)
    later = ordered[len(due) :]
    return DueCheck(due, members[later[0]] if later else None)


class MemoryOpenRuns:
    """Implements OpenRuns."""

    def __init__(self, data: Data) -> None:
        self._data = data

    async def check(self, partitions: Collection[int], limit: int) -> dict[int, DueCheck[RunName]]:
        now = self._data.now()
        by_partition: dict[int, dict[RunName, int]] = {partition: {} for partition in range(PARTITIONS)}
        for run, at in self._data.open.items():
            by_partition[partition_of(run.flow_id)][run] = at
        return {partition: _check(by_partition[partition], now, limit) for partition in partitions}

    async def postpone(self, runs: Mapping[RunName, int]) -> None:
        now = self._data.now()
        self._data.open.update({run: now + delay for run, delay in runs.items() if run in self._data.open})

    async def of_flow(self, flow_id: str, limit: int) -> list[RunName]:
        flow = self._data.flows.get(flow_id)
        if flow is None:
            return []
        return sorted(flow.open, key=lambda run: (not flow.open[run], run))[:limit]

    async def forget(self, run: RunName) -> None:
        flow = self._data.flows.get(run.flow_id)
        on_record = flow.runs.get(run) if flow is not None else None
        if on_record is not None and not is_terminal(on_record.state.status):
            return
        self._data.open.pop(run, None)
        if flow is not None:
            flow.open.pop(run, None)
            backfill = flow.backfills.get(flow.filling.pop(run, 0))
            if backfill is not None:
                backfill.look_ms = 0
            flow.retry_ms = 0


class MemoryOutbox:
    """Implements Outbox."""

    def __init__(self, data: Data) -> None:
        self._data = data

    async def check(self, partitions: Collection[int], limit: int) -> dict[int, DueCheck[str]]:
        now, found = self._data.now(), {}
        for partition in partitions:
            mine = {flow: at for flow, at in self._data.outbox.items() if partition_of(flow) == partition}
            found[partition] = _check(mine, now, limit)
        return found

    async def settle(self, flow_id: str, schedule_epoch: int) -> bool:
        flow = self._data.flows.get(flow_id)
        if flow is not None and flow.schedule_epoch != schedule_epoch:
            return False
        self._data.outbox.pop(flow_id, None)
        return True

    async def add(self, flow_id: str) -> None:
        self._data.outbox[flow_id] = self._data.now()

    async def postpone(self, flow_id: str, delay_ms: int) -> None:
        if flow_id in self._data.outbox:
            self._data.outbox[flow_id] = self._data.now() + delay_ms
