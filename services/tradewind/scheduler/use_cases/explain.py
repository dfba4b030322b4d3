"""Explains why a flow begins no cycle, and why a node of a cycle has the status that it has."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from tradewind.api.node_task_manager.v1.node_task_pb2 import NodeTask, NodeTaskStatus
from tradewind.scheduler.domain.backfill import Backfill, BackfillStatus
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.cycle_status import CycleStatus, is_terminal
from tradewind.scheduler.domain.event_schedule import EventSchedule
from tradewind.scheduler.domain.firing import Firing, FiringOutcome
from tradewind.scheduler.domain.flow_record import FlowRecord
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.ports.cycles import OpenRuns
from tradewind.scheduler.ports.explaining import NodeTaskReasons, WorkerRecords
from tradewind.scheduler.ports.flows import Backfills, Firings
from tradewind.scheduler.ports.peers import NodeTasks, PeerUnavailable
from tradewind.scheduler.use_cases.change_flow import first_planned
from tradewind.scheduler.use_cases.definitions import Definitions
from tradewind.scheduler.use_cases.failed_nodes import failed_nodes, failure_text
from tradewind.scheduler.use_cases.read_flows import ReadFlows
from tradewind.server.clock import Clock
from tradewind.server.faults import NotFound
from tradewind.server.nearest_name import NearestName
from tradewind.server.reasons import Fact, Reason, iso, no_live_worker, ordered, store_takes_no_writes, workers_busy

_OPEN = 3
_FAILED = 20
_FIRINGS = 5
_ENDED = (
    NodeTaskStatus.NODE_TASK_STATUS_COMPLETED,
    NodeTaskStatus.NODE_TASK_STATUS_FAILED,
    NodeTaskStatus.NODE_TASK_STATUS_TERMINATED,
    NodeTaskStatus.NODE_TASK_STATUS_SKIPPED,
)
_TICKS = {
    FiringOutcome.QUEUED: ("tick_queued", "waits in the queue of its overlap policy"),
    FiringOutcome.SKIPPED: ("tick_skipped", "was skipped"),
    FiringOutcome.DROPPED: ("tick_dropped", "was dropped"),
    FiringOutcome.MISSED: ("tick_missed", "was missed"),
}


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
        firings = await self._firings.newest(flow_id, 0, _FIRINGS)
        reasons = [
            *store_takes_no_writes(await self._refusal()),
            *_status_reasons(flow),
            *self._next_cycle_reasons(flow, firings),
        ]
        # The index of open runs may still name one that has ended, or that has no record.
        states = await self._read.runs(await self._open_runs.of_flow(flow_id, _OPEN))
        running = [state for state in states if not is_terminal(state.status)]
        for state in running:
            reasons += _open_cycle_reasons(state, known=await _is_known(self._node_tasks, state))
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
            reason = await _ended_reason(self._node_tasks, state, "last_cycle_failed")
        except PeerUnavailable:
            return []
        return [replace(reason, facts={"cycle": state.name.cycle, "run": state.name.run, **reason.facts})]

    def _next_cycle_reasons(self, flow: FlowRecord, firings: Sequence[Firing]) -> list[Reason]:
        if flow.pause is not None and first_planned(flow, 0, self._clock.now_ms())[0] is None:
            text = "its schedule plans no further cycle; it completes when it has been resumed and no cycle is running"
            return [Reason("schedule_over", text, {"running_cycles": flow.running_cycles})]
        if flow.status is not FlowStatus.RUNNING:
            return []
        next_ms, schedule = flow.next_execution_ms, flow.schedule
        if not next_ms:
            text = "its schedule plans no further cycle; it completes when its running cycles have ended"
            return [Reason("schedule_over", text, {"running_cycles": flow.running_cycles})]
        reasons: list[Reason] = []
        if schedule.start_ms > self._clock.now_ms():
            text = f"its schedule begins at {iso(schedule.start_ms)}"
            reasons.append(Reason("outside_window", text, {"start": iso(schedule.start_ms)}))
        if schedule.on and schedule.is_over(self._clock.now_ms()):
            text = f"the window of its schedule ended at {iso(schedule.end_ms)}; it completes when no cycle is running"
            return [Reason("schedule_over", text, {"running_cycles": flow.running_cycles})]
        if schedule.on:
            return [*reasons, _event_reason(schedule.on, firings)]
        text = f"the next cycle is planned for {iso(next_ms)}"
        late_s = (self._clock.now_ms() - next_ms - schedule.jitter_ms) // 1000
        if late_s > 0:
            text = f"a cycle was planned for {iso(next_ms)} and has still not begun, {late_s} s later"
        elif schedule.jitter_ms:
            text += f", and begins up to {schedule.jitter_ms / 1000:g} s later because of its jitter"
        facts: dict[str, Fact] = {"at": iso(next_ms), "jitter": schedule.jitter_ms / 1000, "late": max(0, late_s)}
        return [*reasons, Reason("next_tick", text, facts)]


def _event_reason(on: EventSchedule, firings: Sequence[Firing]) -> Reason:
    """Return which events cycles begin on, and the outcome of the last event."""
    last = next((firing for firing in firings if firing.event_id), None)
    text = f"waits for {on.description}"
    if last is None:
        text += "; none has come yet"
    else:
        text += f"; the last one came at {iso(last.planned_ms)}, and was {last.outcome.value}"
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


async def _is_known(node_tasks: NodeTasks, state: ChainState) -> bool:
    """Say whether the node task manager has a run; the record notes that only some time after submission."""
    if state.submitted_ms or state.components:
        return True
    try:
        return any(view.run_id == state.facts.run_id for view in await node_tasks.components([state]))
    except PeerUnavailable:
        return False


def _status_reasons(flow: FlowRecord) -> list[Reason]:
    since = iso(flow.updated_ms)
    match flow.status:
        case FlowStatus.DELETING:
            return [Reason("deleting", f"it is being deleted; that began at {since}", {"since": since})]
        case FlowStatus.PAUSED if flow.pause is not None:
            return [_pause_reason(flow)]
        case FlowStatus.STOPPED if flow.stop is not None:
            stop = flow.stop
            at, why = iso(stop.at_ms), f": {stop.reason}" if stop.reason else ""
            text = f"stopped by {stop.by} at {at}{why}; start it to let cycles begin"
            return [Reason("stopped", text, {"at": at, "by": stop.by, "why": stop.reason})]
        case FlowStatus.STOPPED:
            return [Reason("stopped", f"it was stopped at {since}; start it to let cycles begin", {"at": since})]
        case FlowStatus.REGISTERED:
            return [Reason("not_started", "it was never started; start it to let cycles begin", {"since": since})]
        case FlowStatus.COMPLETED | FlowStatus.FAILED:
            text = f"its schedule ended at {since}, and it {flow.status.value}"
            return [Reason("schedule_over", text, {"at": since, "status": flow.status.value})]
    return []


def _pause_reason(flow: FlowRecord) -> Reason:
    pause = flow.pause
    assert pause is not None
    facts: dict[str, Fact] = {"by": pause.by, "since": iso(pause.at_ms), "note": pause.note}
    if pause.failures:
        text = f"{pause.note}, at {iso(pause.at_ms)}; resume it when the cause is fixed"
        more: dict[str, Fact] = {"failures": pause.failures, "last_cycle": pause.failed_cycle}
        return Reason("paused_after_failures", text, facts | more)
    note = f": {pause.note}" if pause.note else ""
    return Reason("paused", f"paused by {pause.by} at {iso(pause.at_ms)}{note}", facts)


def _open_cycle_reasons(state: ChainState, *, known: bool) -> list[Reason]:
    """Return what an open cycle waits for as a whole; `known` says whether the node task manager has it."""
    cycle, since = state.name.cycle, iso(state.facts.start_ms)
    reasons = []
    if state.stop is not None:
        stop = state.stop
        text = f"cycle {cycle} is stopping: {stop.by} asked for it at {iso(stop.at_ms)}: {stop.reason}"
        facts: dict[str, Fact] = {"cycle": cycle, "by": stop.by, "why": stop.reason, "since": iso(stop.at_ms)}
        reasons.append(Reason("stopping", text, facts))
    if not known:
        text = f"cycle {cycle} has been waiting since {since} for the node task manager to accept it"
        text += f": {state.reason}" if state.reason else ""
        facts = {"cycle": cycle, "since": since, "why": state.reason}
        reasons.append(Reason("waits_for_node_task_manager", text, facts))
    text = f"cycle {cycle} has been running since {since}"
    return [*reasons, Reason("cycle_running", text, {"cycle": cycle, "run": state.name.run, "since": since})]


async def _ended_reason(node_tasks: NodeTasks, state: ChainState, code: str) -> Reason:
    """Return how a cycle ended, and which of its nodes failed. Raises PeerUnavailable."""
    failed = await failed_nodes(node_tasks, state, min(state.counts().failed, _FAILED))
    text = f"cycle {state.name.cycle} {state.status.value} at {iso(state.end_ms)}"
    text += f": {state.reason}" if state.reason else ""
    text += "".join(f"; {each}" for each in map(failure_text, failed))
    facts: dict[str, Fact] = {
        "status": state.status.value,
        "at": iso(state.end_ms),
        "why": state.reason,
        "failed_nodes": [
            {"node_id": task.node_id, "error_code": task.error.code, "error_message": task.error.message}
            for task in failed
        ],
    }
    return Reason(code, text, facts)


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
    for firing in firings[:1]:
        if firing.outcome in _TICKS:
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
            overlap = f" (overlap {flow.overlap.value})" if flow.pause is None else ""
            return [Reason(code, f"{subject} {text}{why}{overlap}", facts)]
    return []


@dataclass(frozen=True, slots=True)
class NodeExplanation:
    """A node of a cycle; `node_task` is None if the node task manager does not know it yet, or no longer."""

    state: ChainState
    node_task: NodeTask | None
    reasons: list[Reason]


class ExplainNode:
    """Adds to the node task manager's reasons those of the node's cycle and of the workers that offer its type.

    `refusal()` returns why the scheduler's store takes no writes, "" when it takes them.
    """

    def __init__(
        self,
        read: ReadFlows,
        definitions: Definitions,
        node_tasks: NodeTasks,
        known: NodeTaskReasons,
        workers: WorkerRecords,
        refusal: Callable[[], Awaitable[str]],
    ) -> None:
        self._read = read
        self._definitions = definitions
        self._node_tasks = node_tasks
        self._known = known
        self._workers = workers
        self._refusal = refusal

    async def __call__(self, flow_id: str, cycle: int | None, run: int | None, node_id: str) -> NodeExplanation:
        """Return a node and the reasons, the most decisive first. Raises NotFound, PeerUnavailable.

        `node_id` may also be `<node>:<item>`, an item of a node that runs over a list.
        """
        state = await self._read.cycle(flow_id, cycle, run)
        task_id = f"{state.name}:{node_id}"
        node, is_item, _ = node_id.partition(":")
        planned = await self._definitions.of_run(state)
        if planned is not None and node not in planned.shape.node_ids:
            raise NotFound("node task", task_id, hint=NearestName(planned.shape.node_ids).hint(node))
        found = await self._known.explain(task_id, state.facts.user_id)
        if found is None and is_item:
            await self._refuse_unknown_item(state, node, task_id)
        if is_terminal(state.status):
            reasons = [await _ended_reason(self._node_tasks, state, "run_ended")]
        else:
            known = found is not None or await _is_known(self._node_tasks, state)
            reasons = [each for each in _open_cycle_reasons(state, known=known) if each.code != "cycle_running"]
            if found is None or all(each.code != "store_takes_no_writes" for each in found[1]):
                # Both services mostly use the same store: then this reason is there already.
                reasons += store_takes_no_writes(await self._refusal())
            if known and found is None:
                text = "its component is withheld until other components have ended"
                reasons.append(Reason("withheld", text, {"cycle": state.name.cycle}))
        if found is None:
            return NodeExplanation(state, None, ordered(reasons))
        node_task, node_reasons = found
        if any(reason.code == "queued" for reason in node_reasons):
            no_worker = next((reason for reason in node_reasons if reason.code == "no_live_worker"), None)
            node_reasons = [reason for reason in node_reasons if reason is not no_worker]
            reasons.append(await self._no_worker_reason(node_task.node_type, no_worker))
        # The end of the node itself comes before the end of its cycle.
        ended = node_task.status in _ENDED
        return NodeExplanation(
            state, node_task, [*node_reasons, *reasons] if ended else ordered([*reasons, *node_reasons])
        )

    async def _refuse_unknown_item(self, state: ChainState, node_id: str, task_id: str) -> None:
        """Raise NotFound for an unknown item of a known node."""
        found = await self._known.explain(f"{state.name}:{node_id}", state.facts.user_id)
        if found is not None:
            total = found[0].items.total if found[0].HasField("items") else None
            text = "does not run over a list" if total is None else f"has {total} items, counted from 0"
            raise NotFound("node task", task_id, hint=f'; node "{node_id}" {text}')

    async def _no_worker_reason(self, node_type: str, no_worker: Reason | None) -> Reason:
        """Return why no worker takes the node.

        The node task manager knows which workers are connected, the registry which are on record. `no_worker` is the
        reason that no connected worker offers the type, None if one does.
        """
        workers = await self._workers.workers(node_type)
        if workers is None:
            return no_worker or workers_busy(node_type)
        offline = {each.worker_id: each.last_heartbeat_ms for each in workers if not each.alive}
        if no_worker is not None:
            last = {name: str(no_worker.facts.get(name, "")) for name in ("last_worker", "until")}
            return no_live_worker(node_type, (), offline, **last)
        accepting = [each for each in workers if each.alive and not each.draining]
        if not accepting:
            draining = [each.worker_id for each in workers if each.alive]
            return no_live_worker(node_type, draining, offline) if draining else workers_busy(node_type)
        connected = await self._known.connected([each.worker_id for each in accepting])
        absent = [] if connected is None else [each.worker_id for each in accepting if each.worker_id not in connected]
        accepting = [each for each in accepting if each.worker_id not in absent]
        slots = sum(each.capacity for each in accepting)
        free = sum(max(0, each.capacity - each.running) for each in accepting)
        return workers_busy(node_type, len(accepting), slots, free, absent)
