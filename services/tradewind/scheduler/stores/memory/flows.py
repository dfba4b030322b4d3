"""Flows in memory."""

from collections.abc import Sequence
from dataclasses import replace

from tradewind.scheduler.domain.chain_state import StopRequest
from tradewind.scheduler.domain.firing import FiringOutcome
from tradewind.scheduler.domain.flow_record import (
    DEFAULT_USER,
    FlowOutline,
    FlowRecord,
    FlowRegistration,
    FlowStop,
    RegisterOutcome,
    StatusAnswer,
    StatusChange,
    StatusOutcome,
)
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.log_line import LogSource
from tradewind.scheduler.domain.revision import Revision
from tradewind.scheduler.stores.memory.backfills import cancel_backfill, look_again_at_all
from tradewind.scheduler.stores.memory.data import TOMBSTONE_MS, Data, Flow
from tradewind.scheduler.stores.memory.firings import (
    drop_queued,
    end_flow_that_is_over,
    pause,
    pause_text,
    record_firing,
)
from tradewind.scheduler.stores.memory.stopping import mark_stopping


class MemoryFlows:
    """Implements FlowRecords."""

    def __init__(self, data: Data, kept_revisions: int) -> None:
        self._data = data
        self._kept_revisions = kept_revisions

    async def register(self, registration: FlowRegistration) -> tuple[RegisterOutcome, int]:
        now = self._data.now()
        flow = self._data.flows.get(registration.flow_id)
        if flow and flow.status is FlowStatus.DELETING:
            return RegisterOutcome.DELETING, 0
        if registration.owner_only and flow is not None and flow.user_id != registration.user_id:
            return RegisterOutcome.NOT_OWNER, 0
        request = registration.request
        if request and (first := self._data.first_answer(request)):
            if first.payload != request.payload:
                return RegisterOutcome.REUSED, 0
            if flow:
                return RegisterOutcome.REPEATED, flow.revision
        if registration.etag:
            if flow is None:
                return RegisterOutcome.NOT_FOUND, 0
            if registration.etag != _record(flow).etag:
                return RegisterOutcome.MOVED, flow.revision
        user_id = registration.user_id or (flow.user_id if flow else DEFAULT_USER)
        if flow is None:
            outcome = RegisterOutcome.CREATED
            flow = self._create(registration, user_id, now)
        elif flow.digest == registration.digest and flow.user_id == user_id:
            outcome = RegisterOutcome.SAME
        else:
            outcome = RegisterOutcome.CHANGED
            self._revise(flow, registration, user_id, now)
        if request:
            self._data.remember(request, now)
            flow.request = request
        return outcome, flow.revision

    def _create(self, registration: FlowRegistration, user_id: str, now: int) -> Flow:
        _, tombstone_epoch = self._data.tombstones.get(registration.flow_id, (0, 0))
        flow = Flow(
            flow_id=registration.flow_id,
            user_id=user_id,
            status=FlowStatus.REGISTERED,
            config_json=registration.config_json,
            structure_json=registration.structure_json,
            labels=registration.labels,
            digest=registration.digest,
            schedule=registration.schedule,
            pause_after_failures=registration.pause_after_failures,
            overlap=registration.overlap,
            keep_cycles=registration.keep_cycles,
            created_ms=now,
            updated_ms=now,
            schedule_epoch=max(tombstone_epoch + 1, now),
        )
        self._data.flows[flow.flow_id] = flow
        _record_revision(flow, registration, now)
        return flow

    def _revise(self, flow: Flow, registration: FlowRegistration, user_id: str, now: int) -> None:
        self._supersede(flow)
        # A flow that begins on ends of its user's flows listens for other ends when it changes hands.
        planned_anew = flow.schedule != registration.schedule or (registration.first_ms < 0 and flow.user_id != user_id)
        if flow.status is FlowStatus.RUNNING and planned_anew:
            passed = registration.passed
            if passed is not None and flow.next_execution_ms == passed.first_ms:
                record_firing(flow, now, passed, FiringOutcome.DROPPED, "the schedule was changed")
            flow.anchor_ms = flow.next_execution_ms = registration.planned_next(flow.next_execution_ms, now)
            flow.schedule_epoch = max(flow.schedule_epoch + 1, now)
            self._data.outbox[flow.flow_id] = now
        elif flow.pause is not None and not flow.pause.next_ms and flow.schedule != registration.schedule:
            flow.pause = replace(flow.pause, next_ms=registration.planned_next(0, now))
        flow.user_id = user_id
        flow.config_json = registration.config_json
        flow.structure_json = registration.structure_json
        flow.labels = registration.labels
        flow.digest = registration.digest
        flow.schedule = registration.schedule
        flow.pause_after_failures = registration.pause_after_failures
        flow.overlap = registration.overlap
        flow.retry_ms = 0
        flow.keep_cycles = registration.keep_cycles
        flow.revision += 1
        flow.updated_ms = now
        _record_revision(flow, registration, now)

    def _supersede(self, flow: Flow) -> None:
        """Keep the current revision readable; remove revisions beyond the limit that no open run uses."""
        flow.revisions[flow.revision] = flow.config_json
        needed = {flow.runs[name].state.facts.revision for name in flow.open}
        for older in list(flow.revisions):
            if older <= flow.revision + 1 - self._kept_revisions and older not in needed:
                del flow.revisions[older], flow.history[older]

    async def find(self, flow_ids: Sequence[str]) -> list[FlowRecord | None]:
        self._data.now()
        return [_record(self._data.flows[flow_id]) if flow_id in self._data.flows else None for flow_id in flow_ids]

    async def owners(self, flow_ids: Sequence[str]) -> list[str | None]:
        return [flow.user_id if (flow := self._data.flows.get(each)) else None for each in flow_ids]

    async def list_ids(self, after: str, limit: int) -> list[str]:
        return sorted(flow_id for flow_id in self._data.flows if flow_id > after)[:limit]

    async def outlines(self, after: str, limit: int) -> tuple[list[FlowOutline], str]:
        ids = await self.list_ids(after, limit + 1)
        found = [_outline(self._data.flows[flow_id]) for flow_id in ids[:limit]]
        return found, ids[limit - 1] if len(ids) > limit else ""

    async def change_status(self, change: StatusChange) -> StatusAnswer:
        now = self._data.now()
        flow = self._data.flows.get(change.flow_id)
        if flow is None:
            return StatusAnswer(StatusOutcome.NOT_FOUND)
        found = flow.status
        outcome = StatusOutcome.UNCHANGED
        if found is not change.status:
            if found not in change.allowed_from:
                return StatusAnswer(StatusOutcome.REFUSED, found)
            outcome = StatusOutcome.CHANGED
            if change.status is FlowStatus.PAUSED:
                pause(self._data, flow, now, change.by, change.reason)
            else:
                self._start_or_end(flow, change, now)
        if change.status in (FlowStatus.RUNNING, FlowStatus.PAUSED):
            return StatusAnswer(outcome, found)
        for backfill_id in flow.backfills:
            cancel_backfill(flow, backfill_id, now, "the flow was stopped")
        stop = StopRequest(change.by, change.reason or "the flow was stopped", now)
        return StatusAnswer(outcome, found, mark_stopping(self._data, flow, stop, LogSource.USER))

    def _start_or_end(self, flow: Flow, change: StatusChange, now: int) -> None:
        over = False
        if flow.pause is not None:
            over = change.over or not flow.pause.next_ms
            if change.passed is not None:
                record_firing(flow, now, change.passed, FiringOutcome.SKIPPED, pause_text(flow.pause))
            flow.pause = None
            look_again_at_all(flow, now)
        elif change.status is FlowStatus.RUNNING:
            flow.fired = flow.failures = 0
            flow.started_epoch = max(flow.schedule_epoch + 1, now)
        elif change.passed is not None and flow.next_execution_ms == change.passed.first_ms:
            record_firing(flow, now, change.passed, FiringOutcome.DROPPED, "the flow was stopped")
        stopped = change.status is FlowStatus.STOPPED
        flow.stop = FlowStop(change.by, change.reason, now) if stopped else None
        flow.status = change.status
        flow.next_execution_ms = (change.start_at_ms or now) if change.status is FlowStatus.RUNNING and not over else 0
        # Backfills of a flow that no longer runs use the grid on which it ran.
        flow.anchor_ms = flow.next_execution_ms or flow.anchor_ms
        if over:
            end_flow_that_is_over(flow, now, FlowStatus.COMPLETED)
        flow.schedule_epoch = max(flow.schedule_epoch + 1, now)
        flow.updated_ms = now
        self._data.outbox[flow.flow_id] = now
        if change.status is not FlowStatus.RUNNING:
            drop_queued(flow, now, "the flow was stopped")

    async def definition(self, flow_id: str, revision: int) -> str | None:
        flow = self._data.flows.get(flow_id)
        if flow is None:
            return None
        return flow.config_json if flow.revision == revision else flow.revisions.get(revision)

    async def raise_schedule_epoch(self, flow_id: str) -> int:
        flow = self._data.flows.get(flow_id)
        if flow is None:
            return 0
        flow.schedule_epoch = max(flow.schedule_epoch + 1, self._data.now())
        return flow.schedule_epoch

    async def remove_step(self, flow_id: str, cycles: int = 100) -> bool:
        now = self._data.now()
        flow = self._data.flows.get(flow_id)
        if flow is None:
            self._data.outbox.pop(flow_id, None)
            return True
        if flow.status is not FlowStatus.DELETING:
            return True
        oldest = sorted(flow.runs, key=lambda name: (name in flow.open, name))[:cycles]
        for name in oldest:
            self._data.forget(flow.runs[name].request)
            self._data.remove_run(flow, name)
            flow.logs.pop(name.cycle, None)
        if len(oldest) == cycles:
            return False
        for request in (flow.request, *(each.request for each in flow.backfills.values())):
            self._data.forget(request)
        self._data.tombstones[flow_id] = (now + TOMBSTONE_MS, flow.schedule_epoch)
        self._data.outbox.pop(flow_id, None)
        del self._data.flows[flow_id]
        self._data.publish_removal(flow_id)
        return True


def _record_revision(flow: Flow, registration: FlowRegistration, now: int) -> None:
    flow.history[flow.revision] = Revision(
        flow.revision, now, registration.by, registration.note, registration.digest, registration.labels
    )


def _outline(flow: Flow) -> FlowOutline:
    size = len(flow.config_json.encode()) + len(flow.structure_json.encode())
    return FlowOutline(flow.flow_id, flow.user_id, flow.status, tuple(sorted(flow.labels)), flow.created_ms, size)


def _record(flow: Flow) -> FlowRecord:
    return FlowRecord(
        flow_id=flow.flow_id,
        user_id=flow.user_id,
        status=flow.status,
        config_json=flow.config_json,
        structure_json=flow.structure_json,
        labels=flow.labels,
        last_cycle=flow.last_cycle,
        next_execution_ms=flow.next_execution_ms,
        created_ms=flow.created_ms,
        updated_ms=flow.updated_ms,
        revision=flow.revision,
        digest=flow.digest,
        schedule=flow.schedule,
        overlap=flow.overlap,
        keep_cycles=flow.keep_cycles,
        schedule_epoch=flow.schedule_epoch,
        anchor_ms=flow.anchor_ms,
        running_cycles=len(flow.open),
        pause=flow.pause,
        stop=flow.stop,
    )
