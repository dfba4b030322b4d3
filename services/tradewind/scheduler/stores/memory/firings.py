"""The outcomes of planned times, in memory: a flow's ledger, and its queue of planned times that wait."""

from collections.abc import Collection
from dataclasses import replace

from tradewind.scheduler.domain.beginning import BeginRequest, EventFiring
from tradewind.scheduler.domain.chain_state import StopRequest
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.firing import Firing, FiringOutcome
from tradewind.scheduler.domain.flow_definition import OverlapPolicy
from tradewind.scheduler.domain.flow_record import Pause
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.log_line import LogSource
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.stores.memory.data import FIRINGS, QUEUE, RECENT, REMEMBERED_MS, Data, Flow, Waiting
from tradewind.scheduler.stores.memory.stopping import mark_stopping
from tradewind.server.partitions import partition_of
from tradewind.server.schedules.schedule import Span


class MemoryFirings:
    """Implements Firings."""

    def __init__(self, data: Data) -> None:
        self._data = data

    async def newest(self, flow_id: str, before_ms: int, limit: int, backfill_id: int = 0) -> list[Firing]:
        flow = self._data.flows.get(flow_id)
        firings = flow.firings if flow else {}
        if backfill_id:
            record = flow.backfills.get(backfill_id) if flow else None
            firings = record.firings if record else {}
        lines = sorted(firings.values(), key=lambda line: line.planned_ms, reverse=True)
        return [line for line in lines if not before_ms or line.planned_ms < before_ms][:limit]

    async def waiting(self, partitions: Collection[int], limit: int) -> list[str]:
        now, found = self._data.now(), list[str]()
        ready = [name for name, flow in self._data.flows.items() if flow.queued and flow.retry_ms <= now]
        for partition in partitions:
            found += [name for name in ready if partition_of(name) == partition][:limit]
        return found


def firing_of(
    now: int,
    planned: Span | int,
    outcome: FiringOutcome,
    reason: str,
    run: tuple[RunName, str] | None = None,
    event_id: str = "",
) -> Firing:
    """Return the outcome of a planned time, or of several with the same outcome; `run` is the run that began."""
    span = Span(planned, planned, 1) if isinstance(planned, int) else planned
    cycle, number, run_id = (run[0].cycle, run[0].run, run[1]) if run else (-1, 0, "")
    return Firing(span.first_ms, outcome, cycle, number, run_id, now, span.count, span.last_ms, reason, event_id)


def record_firing(
    flow: Flow,
    now: int,
    planned: Span | int,
    outcome: FiringOutcome,
    reason: str = "",
    run: tuple[RunName, str] | None = None,
    event_id: str = "",
) -> None:
    """Note the outcome of a planned time, of several with the same outcome, or of an event; each has one line."""
    line = firing_of(now, planned, outcome, reason, run, event_id)
    flow.firings[line.planned_ms] = line
    if len(flow.firings) > FIRINGS:
        del flow.firings[min(flow.firings)]


def drop_queued(flow: Flow, now: int, reason: str) -> None:
    """Drop all planned times that wait."""
    for waiting in flow.queued:
        _settle(flow, now, waiting, FiringOutcome.DROPPED, reason)
    flow.queued = []


def settle_event(request: BeginRequest, event: EventFiring, flow: Flow, now: int, same_revision: bool) -> bool:
    """Settle an event if no cycle can begin for it, whatever is running; return whether it is settled.

    Unless the flow is at the revision that the request was made for, the request's own reason does not count.
    """
    if request.due_ms in flow.firings:
        return False
    if len(flow.firings) >= FIRINGS and request.due_ms < min(flow.firings):
        return True
    newest = sorted(flow.firings.values(), key=lambda line: line.planned_ms, reverse=True)[:RECENT]
    if any(line.event_id == event.event_id and line.planned_ms >= request.due_ms - REMEMBERED_MS for line in newest):
        # The trigger service, whose store has lost that the event came, takes it for a new one.
        return True
    outcome, reason = event.outcome, event.reason if same_revision else ""
    if request.schedule_epoch < flow.started_epoch:
        outcome, reason = FiringOutcome.DROPPED, "the flow was stopped meanwhile"
    elif flow.pause is not None:
        outcome, reason = FiringOutcome.SKIPPED, pause_text(flow.pause)
    elif flow.status is not FlowStatus.RUNNING:
        outcome, reason = FiringOutcome.SKIPPED, f"the flow is {flow.status.value}"
    elif not flow.next_execution_ms:
        outcome, reason = FiringOutcome.SKIPPED, "the schedule of the flow is over"
    if reason:
        record_firing(flow, now, request.due_ms, outcome, reason, event_id=event.event_id)
    return bool(reason)


def pause_text(pause: Pause) -> str:
    """Return who paused a flow and why, in words."""
    return f'paused by "{pause.by}"' + (f": {pause.note}" if pause.note else "")


def apply_overlap(data: Data, flow: Flow, waiting: Waiting, now: int) -> tuple[bool, int]:
    """Settle a planned time while a cycle is open, or while the longest waiting planned time is about to begin one.

    Returns whether runs were marked as stopping, and how many more planned times wait than before.
    """
    is_open = bool(flow.blocking_runs)
    not_stopping = [name for name in flow.blocking_runs if not flow.open[name]] or flow.blocking_runs
    running = f"cycle {max(not_stopping).cycle} was running" if is_open else "an earlier cycle was about to begin"
    before = len(flow.queued)
    most = (1 if flow.overlap is OverlapPolicy.QUEUE_ONE else QUEUE) + (not is_open)
    if flow.overlap is OverlapPolicy.SKIP:
        _settle(flow, now, waiting, FiringOutcome.SKIPPED, running)
    elif flow.overlap is OverlapPolicy.CANCEL_RUNNING:
        drop_queued(flow, now, "a later planned time took its place")
        _queue(flow, now, waiting, f"{running} and was asked to stop" if is_open else running)
        stop = StopRequest("scheduler", "the next cycle is due and overlap is cancel_running", now)
        return bool(mark_stopping(data, flow, stop, LogSource.SCHEDULER, blocking_only=True)), 1 - before
    elif before >= most:
        _settle(flow, now, waiting, FiringOutcome.DROPPED, f"{running}, with {before} already waiting")
    else:
        _queue(flow, now, waiting, running)
    return False, len(flow.queued) - before


def _queue(flow: Flow, now: int, waiting: Waiting, reason: str) -> None:
    if not flow.queued:
        flow.retry_ms = 0
    flow.queued = sorted([*flow.queued, waiting])
    _settle(flow, now, waiting, FiringOutcome.QUEUED, reason)


def _settle(flow: Flow, now: int, waiting: Waiting, outcome: FiringOutcome, reason: str) -> None:
    record_firing(flow, now, waiting.planned_ms, outcome, reason, event_id=waiting.event_id)


def pause(data: Data, flow: Flow, now: int, by: str, note: str) -> None:
    """Let no cycle begin until the flow is resumed."""
    next_ms = flow.next_execution_ms
    if flow.queued and flow.fired:
        # The planned times that wait have begun no cycles, so they no longer count towards max_cycles.
        flow.fired = max(0, flow.fired - len(flow.queued))
        next_ms = next_ms or flow.queued[-1].planned_ms
    drop_queued(flow, now, "the flow was paused")
    flow.pause = Pause(by, note, now, next_ms)
    flow.status, flow.next_execution_ms, flow.updated_ms = FlowStatus.PAUSED, 0, now
    flow.schedule_epoch = max(flow.schedule_epoch + 1, now)
    data.outbox[flow.flow_id] = now


def count_failures(data: Data, flow: Flow, now: int, cycle: int, ending: CycleStatus) -> bool:
    """Count cycles that fail in a row; return whether that has paused the flow."""
    if not flow.pause_after_failures:
        return False
    flow.failures = flow.failures + 1 if ending in (CycleStatus.FAILED, CycleStatus.TIMEOUT) else 0
    if flow.failures < flow.pause_after_failures or flow.status is not FlowStatus.RUNNING:
        return False
    note = f"paused after {flow.failures} failed cycles in a row, the last of which was cycle {cycle}"
    pause(data, flow, now, "system", note if flow.failures > 1 else f"paused because cycle {cycle} failed")
    assert flow.pause is not None
    flow.pause = replace(flow.pause, failures=flow.failures, failed_cycle=cycle)
    flow.failures = 0
    return True


def end_flow_that_is_over(flow: Flow, now: int, status: FlowStatus) -> None:
    """End a flow if its schedule has nothing more planned and none of its cycles run or wait."""
    following = flow.pause.next_ms if flow.pause else flow.next_execution_ms
    if flow.status in (FlowStatus.RUNNING, FlowStatus.PAUSED) and not (following or flow.open or flow.queued):
        flow.status, flow.next_execution_ms, flow.updated_ms, flow.pause = status, 0, now, None
