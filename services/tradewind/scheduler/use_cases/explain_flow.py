"""Explains why a flow begins no cycle."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from tradewind.scheduler.domain.backfill import Backfill, BackfillStatus
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.cycle_status import CycleStatus, is_terminal
from tradewind.scheduler.domain.event_schedule import EventSchedule
from tradewind.scheduler.domain.firing import Firing, FiringOutcome
from tradewind.scheduler.domain.flow_record import FlowRecord, Pause
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.ports.backfills import Backfills
from tradewind.scheduler.ports.due_sets import OpenRuns
from tradewind.scheduler.ports.firings import Firings
from tradewind.scheduler.ports.peers import NodeTasks, PeerUnavailable
from tradewind.scheduler.use_cases.cycle_reasons import ended_reason, is_known, open_cycle_reasons
from tradewind.scheduler.use_cases.planned_times import first_when_started
from tradewind.scheduler.use_cases.read_flows import ReadFlows
from tradewind.server.clock import Clock
from tradewind.server.faults import NotFound
from tradewind.server.quoting import quoted
from tradewind.server.reasons import Fact, Reason, iso, ordered, store_takes_no_writes

_MAX_OPEN_RUNS = 3
_MAX_FIRINGS = 5
_MAX_SOURCES = 3
_TICKS = {
    FiringOutcome.QUEUED: ("tick_queued", "waits in the queue of its overlap policy"),
    FiringOutcome.SKIPPED: ("tick_skipped", "was skipped"),
    FiringOutcome.DROPPED: ("tick_dropped", "was dropped"),
    FiringOutcome.MISSED: ("tick_missed", "was missed"),
}

_IDLE = {
    FlowStatus.PAUSED: "paused",
    FlowStatus.STOPPED: "stopped",
    FlowStatus.COMPLETED: "completed",
    FlowStatus.FAILED: "failed",
    FlowStatus.DELETING: "being deleted",
}
"""Statuses of flows that begin no cycle by their schedules, in words."""
_BY_OVERLAP = ("cycle ", "an earlier cycle ", "a later planned time ")
"""The first words of reasons that overlap policies give."""


class ExplainFlow:
    """Goes by the flow's record, its open cycles and the outcomes of its latest planned times.

    `refusal()` returns why the store takes no writes, "" when it takes them.
    """

    def __init__(
        self,
        read: ReadFlows,
        firings: Firings,
        open_runs: OpenRuns,
        backfills: Backfills,
        node_tasks: NodeTasks,
        refusal: Callable[[], Awaitable[str]],
        clock: Clock,
    ) -> None:
        self._read = read
        self._node_tasks = node_tasks
        self._firings = firings
        self._open_runs = open_runs
        self._backfills = backfills
        self._refusal = refusal
        self._clock = clock

    async def __call__(self, flow_id: str) -> tuple[FlowRecord, list[Reason]]:
        """Return a flow and the reasons, the most decisive first. Raises NotFound."""
        flow = await self._read.flow(flow_id)
        firings = await self._firings.newest(flow_id, 0, _MAX_FIRINGS)
        reasons = [
            *store_takes_no_writes(await self._refusal()),
            *_status_reasons(flow),
            *await self._next_cycle_reasons(flow, firings),
        ]
        # The index of open runs may still name one that has ended, or that has no record.
        states = await self._read.runs(await self._open_runs.of_flow(flow_id, _MAX_OPEN_RUNS))
        running = [state for state in states if not is_terminal(state.status)]
        for state in running:
            reasons += open_cycle_reasons(state, known=await is_known(self._node_tasks, state))
            more = flow.running_cycles - _MAX_OPEN_RUNS if state is running[-1] else 0
            reasons.append(_running_reason(state, more))
        if not running:
            reasons += await self._last_cycle(flow)
        reasons += _tick_reasons(flow, firings)
        backfills = await self._backfills.find(flow_id, await self._backfills.ids(flow_id))
        reasons += [
            _backfill_reason(each, flow) for each in backfills if each and each.status is BackfillStatus.RUNNING
        ]
        return flow, ordered(reasons)

    async def _last_cycle(self, flow: FlowRecord) -> list[Reason]:
        """Return how the latest cycle ended, if it did not complete."""
        try:
            state = await self._read.cycle(flow.flow_id, flow.last_cycle, None)
        except NotFound:
            # No cycle has begun, or the record has passed its retention.
            return []
        if not is_terminal(state.status) or state.status is CycleStatus.COMPLETED:
            return []
        try:
            reason = await ended_reason(self._node_tasks, state, "last_cycle_failed")
        except PeerUnavailable:
            return []
        return [replace(reason, facts={"cycle": state.name.cycle, "run": state.name.run, **reason.facts})]

    async def _next_cycle_reasons(self, flow: FlowRecord, firings: Sequence[Firing]) -> list[Reason]:
        now_ms = self._clock.now_ms()
        if zone := flow.schedule.unknown_zone:
            text = f'its schedule is in the time zone "{zone}", which this server does not know: no cycle begins here'
            return [
                Reason("time_zone_unknown", f"{text}; update tzdata on its machine, and restart it", {"zone": zone})
            ]
        if flow.pause is not None and first_when_started(flow, 0, now_ms)[0] is None:
            text = "its schedule plans no further cycle; it completes when it has been resumed and no cycle is running"
            return [_schedule_over(flow, text)]
        if flow.status is not FlowStatus.RUNNING:
            return []
        next_ms, schedule = flow.next_execution_ms, flow.schedule
        if not next_ms:
            text = "its schedule plans no further cycle; it completes when its running cycles have ended"
            return [_schedule_over(flow, text)]
        if schedule.on and schedule.is_over(now_ms):
            text = f"the window of its schedule ended at {iso(schedule.end_ms)}; it completes when no cycle is running"
            return [_schedule_over(flow, text)]
        reasons: list[Reason] = []
        if schedule.start_ms > now_ms:
            text = f"its schedule begins at {iso(schedule.start_ms)}"
            reasons.append(Reason("outside_window", text, {"start": iso(schedule.start_ms)}))
        if schedule.on:
            return [*reasons, _event_reason(schedule.on, firings, await self._idle_sources(flow, schedule.on))]
        due_ms = schedule.delivery_ms(flow.flow_id, next_ms)
        late_s = (now_ms - due_ms) // 1000
        planned = iso(next_ms) + (f", with its jitter for {iso(due_ms)}" if schedule.jitter_ms else "")
        text = f"the next cycle is planned for {planned}"
        if late_s > 0:
            text = f"a cycle was planned for {planned} and has still not begun, {late_s} s later"
        facts: dict[str, Fact] = {"at": iso(next_ms), "jitter": schedule.jitter_ms / 1000, "late": max(0, late_s)}
        return [*reasons, Reason("next_tick", text, facts)]

    async def _idle_sources(self, flow: FlowRecord, on: EventSchedule) -> list[str]:
        """Say of the first few flows whose ends it begins on why, as things are, none will come by their schedules."""
        found: list[str] = []
        for source, record in zip(on.flow_ids, await self._read.sources(on.flow_ids), strict=True):
            if record is None:
                found.append(f"flow {quoted(source)} is not registered{await self._read.similar(source)}")
            elif record.user_id != flow.user_id:
                found.append(f"flow {quoted(source)} belongs to another user, so its ends do not count")
            elif record.status is FlowStatus.REGISTERED and not record.schedule.once:
                found.append(f"flow {quoted(source)} was never started")
            elif record.status in _IDLE:
                found.append(f"flow {quoted(source)} is {_IDLE[record.status]}")
            if len(found) == _MAX_SOURCES:
                break
        return found


def _schedule_over(flow: FlowRecord, text: str) -> Reason:
    return Reason("schedule_over", text, {"running_cycles": flow.running_cycles})


def _event_reason(on: EventSchedule, firings: Sequence[Firing], idle: Sequence[str]) -> Reason:
    """Return which events cycles begin on, the outcome of the last one, and what is known of `idle` flows before it."""
    last = next((firing for firing in firings if firing.event_id), None)
    text = f"waits for {on.description}"
    if last is None:
        text += "; none has come yet"
    else:
        became = "began a cycle" if last.outcome is FiringOutcome.FIRED else f"was {last.outcome.value}"
        # It may have been another event: the flow can have begun on that before.
        text += f"; the flow's last event came at {iso(last.planned_ms)}, and {became}"
    text += "".join(f"; {each}" for each in idle)
    facts: dict[str, Fact] = {
        "event": on.event_name,
        "filter": on.filter_json,
        "flow_ids": on.flow_ids,
        "statuses": on.statuses,
        "last_at": iso(last.planned_ms) if last else "",
        "last_event_id": last.event_id if last else "",
        "last_outcome": last.outcome.value if last else "",
    }
    return Reason("waits_for_event", text, facts)


def _status_reasons(flow: FlowRecord) -> list[Reason]:
    since = iso(flow.updated_ms)
    match flow.status:
        case FlowStatus.DELETING:
            return [Reason("deleting", f"it is being deleted; that began at {since}", {"since": since})]
        case FlowStatus.PAUSED if flow.pause is not None:
            return [_pause_reason(flow.pause)]
        case FlowStatus.STOPPED if flow.stop is not None:
            stop = flow.stop
            at, why = iso(stop.at_ms), f": {stop.reason}" if stop.reason else ""
            text = f'stopped by "{stop.by}" at {at}{why}; start it to let cycles begin'
            return [Reason("stopped", text, {"at": at, "by": stop.by, "why": stop.reason})]
        case FlowStatus.STOPPED:
            return [Reason("stopped", f"it was stopped at {since}; start it to let cycles begin", {"at": since})]
        case FlowStatus.REGISTERED:
            return [Reason("not_started", "it was never started; start it to let cycles begin", {"since": since})]
        case FlowStatus.COMPLETED | FlowStatus.FAILED:
            text = f"its schedule ended at {since}, and it {flow.status.value}"
            return [Reason("schedule_over", text, {"at": since, "status": flow.status.value})]
    return []


def _pause_reason(pause: Pause) -> Reason:
    facts: dict[str, Fact] = {"by": pause.by, "since": iso(pause.at_ms), "note": pause.note}
    if pause.failures:
        text = f"{pause.note}, at {iso(pause.at_ms)}; resume it when the cause is fixed"
        more: dict[str, Fact] = {"failures": pause.failures, "last_cycle": pause.failed_cycle}
        return Reason("paused_after_failures", text, facts | more)
    note = f": {pause.note}" if pause.note else ""
    return Reason("paused", f'paused by "{pause.by}" at {iso(pause.at_ms)}{note}; resume it to let cycles begin', facts)


def _running_reason(state: ChainState, more: int) -> Reason:
    """Return since when a cycle has been running, and how many `more` are, of which no reason tells."""
    cycle, since = state.name.cycle, iso(state.facts.start_ms)
    text = f"cycle {cycle} has been running since {since}"
    text += f"; {more} more {'is' if more == 1 else 'are'} running" if more > 0 else ""
    return Reason("cycle_running", text, {"cycle": cycle, "run": state.name.run, "since": since})


def _backfill_reason(backfill: Backfill, flow: FlowRecord) -> Reason:
    """Return the progress of a backfill that is under way."""
    draft = backfill.draft
    text = f"backfill {backfill.backfill_id} has {backfill.left} of {draft.times} cycles to go"
    text += f", {draft.max_running} at a time"
    text += f"; {backfill.running} running now" if backfill.running else ""
    waits = flow.status is FlowStatus.PAUSED and backfill.left > 0
    text += "; it waits until the flow is resumed" if waits else ""
    facts: dict[str, Fact] = {
        "backfill_id": backfill.backfill_id,
        "left": backfill.left,
        "times": draft.times,
        "max_running": draft.max_running,
        "running": backfill.running,
        "waits": waits,
    }
    return Reason("backfilling", text, facts)


def _tick_reasons(flow: FlowRecord, firings: Sequence[Firing]) -> list[Reason]:
    """Return the outcome of the latest planned time, or event, if no cycle began for it."""
    if not firings or firings[0].outcome not in _TICKS:
        return []
    firing = firings[0]
    code, text = _TICKS[firing.outcome]
    planned = iso(firing.planned_ms)
    subject = f"the event of {planned}" if firing.event_id else f"the cycle planned for {planned}"
    facts: dict[str, Fact] = {
        "planned": planned,
        "policy": flow.overlap.value,
        "why": firing.reason,
        "count": firing.count,
    }
    why = f": {firing.reason}" if firing.reason else ""
    overlap = f" (overlap {flow.overlap.value})" if firing.reason.startswith(_BY_OVERLAP) else ""
    return [Reason(code, f"{subject} {text}{why}{overlap}", facts)]
