"""Backfills in memory: which of their cycles begin, which have ended, and what is left."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from tradewind.scheduler.domain.backfill import (
    MAX_ACTIVE,
    Backfill,
    BackfillDraft,
    BackfillOutcome,
    BackfillStatus,
    BackfillStep,
)
from tradewind.scheduler.domain.beginning import BeginOutcome
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.firing import Firing, FiringOutcome
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.stores.memory.data import BLOCKED_MS, RETENTION_MS, BackfillRecord, Data, Flow
from tradewind.scheduler.stores.memory.firings import firing_of
from tradewind.server.partitions import partition_of
from tradewind.server.schedules.schedule import Span

_KEPT = 100


class MemoryBackfills:
    """Implements Backfills."""

    def __init__(self, data: Data) -> None:
        self._data = data

    async def create(self, draft: BackfillDraft) -> tuple[BackfillOutcome, int]:
        now = self._data.now()
        flow = self._data.flows.get(draft.flow_id)
        if flow is None:
            return BackfillOutcome.NOT_FOUND, 0
        if flow.status is FlowStatus.DELETING:
            return BackfillOutcome.DELETING, 0
        request = draft.request
        first = self._data.first_answer(request) if request else None
        if request and first:
            if first.payload != request.payload:
                return BackfillOutcome.REUSED, 0
            return BackfillOutcome.REPEATED, int(first.run_id)
        if sum(each.backfill.status is BackfillStatus.RUNNING for each in flow.backfills.values()) >= MAX_ACTIVE:
            return BackfillOutcome.FULL, 0
        flow.backfill_count += 1
        backfill_id = flow.backfill_count
        backfill = Backfill(
            replace(draft, request=None), backfill_id, BackfillStatus.RUNNING, draft.first_ms, 0, 0, 0, 0, 0, now
        )
        flow.backfills[backfill_id] = BackfillRecord(backfill, request)
        for old in sorted(flow.backfills)[:-_KEPT]:
            if flow.backfills[old].backfill.status is not BackfillStatus.RUNNING:
                del flow.backfills[old]
        if request:
            self._data.remember(request, now, None, str(backfill_id))
        return BackfillOutcome.CREATED, backfill_id

    async def load(self, flow_id: str, backfill_id: int) -> Backfill | None:
        return (await self.find(flow_id, [backfill_id]))[0]

    async def find(self, flow_id: str, backfill_ids: Sequence[int]) -> list[Backfill | None]:
        self._data.now()
        flow = self._data.flows.get(flow_id)
        return [_with_running(flow, backfill_id) if flow else None for backfill_id in backfill_ids]

    async def ids(self, flow_id: str) -> list[int]:
        self._data.now()
        flow = self._data.flows.get(flow_id)
        return sorted(flow.backfills, reverse=True) if flow else []

    async def active(self, partitions: Collection[int], limit: int) -> list[tuple[str, int]]:
        now, found = self._data.now(), list[tuple[str, int]]()
        for partition in partitions:
            mine = [
                (each.look_ms, f"{flow.flow_id}:{backfill_id}", flow.flow_id, backfill_id)
                for flow in self._data.flows.values()
                for backfill_id, each in flow.backfills.items()
                if partition_of(flow.flow_id) == partition and each.backfill.status is BackfillStatus.RUNNING
                if each.look_ms <= now
            ]
            found += [(flow_id, backfill_id) for _, _, flow_id, backfill_id in sorted(mine)[:limit]]
        return found

    async def cancel(self, flow_id: str, backfill_id: int, reason: str) -> bool:
        now = self._data.now()
        flow = self._data.flows.get(flow_id)
        return flow is not None and cancel_backfill(flow, backfill_id, now, reason)


def advance(flow: Flow, step: BackfillStep, now: int) -> BeginOutcome:
    """Move a backfill on from a planned time, and return the outcome of that time."""
    record = flow.backfills.get(step.backfill_id)
    if record is None or record.backfill.status is not BackfillStatus.RUNNING:
        return BeginOutcome.SETTLED
    if flow.status is FlowStatus.PAUSED:
        record.look_ms = now + BLOCKED_MS
        return BeginOutcome.SETTLED
    backfill = record.backfill
    full = _running(flow, step.backfill_id) >= backfill.draft.max_running
    if full or backfill.position_ms != step.position_ms:
        return BeginOutcome.SETTLED
    backfill = replace(backfill, position_ms=step.following_ms)
    firing = _firing_of(flow, step.position_ms)
    if firing is None or firing.outcome not in (FiringOutcome.FIRED, FiringOutcome.QUEUED):
        record.backfill = replace(backfill, begun=backfill.begun + 1)
        return BeginOutcome.BEGUN
    reason, expired = "it was queued", False
    if firing.outcome is FiringOutcome.FIRED:
        expired = RunName(flow.flow_id, firing.cycle, firing.run) not in flow.runs
        reason = f"cycle {firing.cycle} had already begun for this time"
        reason += ", and is no longer on record" if expired else ""
    record.backfill = replace(backfill, skipped=backfill.skipped + 1, expired=backfill.expired + expired)
    _record_firing(record, now, step.position_ms, FiringOutcome.SKIPPED, reason)
    look_again(flow, step.backfill_id, now)
    _end_if_over(flow, step.backfill_id, now)
    return BeginOutcome.DUPLICATE


def _firing_of(flow: Flow, planned_ms: int) -> Firing | None:
    """Return what has become of a planned time.

    The flow's ledger forgets old times, while each backfill has a ledger of its own that holds all of its times.
    """
    if (firing := flow.firings.get(planned_ms)) is not None:
        return firing
    of_backfills = (record.firings.get(planned_ms) for _, record in sorted(flow.backfills.items()))
    return next((each for each in of_backfills if each is not None and each.outcome is FiringOutcome.FIRED), None)


def add_run(flow: Flow, backfill_id: int, planned_ms: int, name: RunName, run_id: str, now: int) -> None:
    """Note that a run has begun for a backfill."""
    flow.filling[name] = backfill_id
    record = flow.backfills.get(backfill_id)
    if record is not None:
        _record_firing(record, now, planned_ms, FiringOutcome.FIRED, "", (name, run_id))
        look_again(flow, backfill_id, now)


def end_run(flow: Flow, backfill_id: int, name: RunName, ending: CycleStatus, now: int) -> None:
    """Note that a run of a backfill has ended, which may have been trimmed at once."""
    flow.filling.pop(name, None)
    record = flow.backfills.get(backfill_id)
    if record is None:
        return
    done = ending is CycleStatus.COMPLETED
    backfill = record.backfill
    record.backfill = replace(backfill, completed=backfill.completed + done, failed=backfill.failed + (not done))
    look_again(flow, backfill_id, now)
    _end_if_over(flow, backfill_id, now)


def cancel_backfill(flow: Flow, backfill_id: int, now: int, reason: str) -> bool:
    """Begin no more cycles of a backfill, and say whether it was under way."""
    record = flow.backfills.get(backfill_id)
    if record is None or record.backfill.status is not BackfillStatus.RUNNING:
        return False
    backfill = record.backfill
    if backfill.position_ms:
        span = Span(backfill.position_ms, backfill.draft.last_ms, backfill.left)
        _record_firing(record, now, span, FiringOutcome.DROPPED, reason)
    _end(record, now, BackfillStatus.CANCELLED, reason)
    return True


def _with_running(flow: Flow, backfill_id: int) -> Backfill | None:
    record = flow.backfills.get(backfill_id)
    if record is None:
        return None
    return replace(record.backfill, running=_running(flow, backfill_id))


def _running(flow: Flow, backfill_id: int) -> int:
    return list(flow.filling.values()).count(backfill_id)


def look_again(flow: Flow, backfill_id: int, now: int) -> None:
    """Set when to look at a backfill again: now, unless it can begin no cycle now."""
    record = flow.backfills[backfill_id]
    full = _running(flow, backfill_id) >= record.backfill.draft.max_running
    record.look_ms = now + BLOCKED_MS if full or not record.backfill.position_ms else 0


def look_again_at_all(flow: Flow, now: int) -> None:
    """Do so for all backfills of a flow that is no longer paused."""
    for backfill_id in flow.backfills:
        look_again(flow, backfill_id, now)


def _end_if_over(flow: Flow, backfill_id: int, now: int) -> None:
    record = flow.backfills[backfill_id]
    over = not record.backfill.position_ms and not _running(flow, backfill_id)
    if over and record.backfill.status is BackfillStatus.RUNNING:
        _end(record, now, BackfillStatus.COMPLETED, "")


def _end(record: BackfillRecord, now: int, status: BackfillStatus, reason: str) -> None:
    record.backfill = replace(record.backfill, status=status, ended_ms=now, reason=reason)
    record.expires_ms = now + RETENTION_MS


def _record_firing(
    record: BackfillRecord,
    now: int,
    planned: int | Span,
    outcome: FiringOutcome,
    reason: str,
    run: tuple[RunName, str] | None = None,
) -> None:
    line = firing_of(now, planned, outcome, reason, run)
    record.firings[line.planned_ms] = line
