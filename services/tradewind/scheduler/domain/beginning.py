"""Beginning a cycle: the requests and the possible answers."""

from dataclasses import dataclass
from enum import StrEnum

import msgspec
from msgspec import structs

from tradewind.scheduler.domain.backfill import BackfillStep
from tradewind.scheduler.domain.chain_state import ChainState, CycleFacts, CycleOrigin, Notes
from tradewind.scheduler.domain.failure_policy import FailurePolicy
from tradewind.scheduler.domain.firing import FiringOutcome
from tradewind.scheduler.domain.flow_record import RememberedRequest
from tradewind.scheduler.domain.handlers import Handlers
from tradewind.scheduler.domain.parent import Parent
from tradewind.scheduler.domain.rerun import Rerun
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.schedule_definition import ScheduleDefinition
from tradewind.server.schedules.schedule import Span


@dataclass(frozen=True, slots=True)
class CycleShape:
    """What every cycle of one revision of a flow has in common; `timeout_ms` 0 for none.

    `digest` is the shortened digest of the registration, "" for whichever is current. The revision's number alone is
    not enough: a flow that has been deleted, or a store that has lost its last second, may have given the same number
    to another revision. `runs_flows` says whether any of its nodes run cycles of other flows.
    """

    flow_id: str
    user_id: str
    revision: int
    node_ids: tuple[str, ...]
    component_count: int
    failure_policy: FailurePolicy
    timeout_ms: int
    keep_cycles: int
    schedule: ScheduleDefinition
    keep_for_ms: int = 0
    handlers: Handlers | None = None
    digest: str = ""
    runs_flows: bool = True


@dataclass(frozen=True, slots=True)
class EventFiring:
    """The event for which a cycle is to begin; or, when `reason` is not empty, why no cycle is to begin for it.

    In that case `outcome` is the outcome of the event.
    """

    event_id: str
    outcome: FiringOutcome = FiringOutcome.FIRED
    reason: str = ""


class BeginRequest(msgspec.Struct, frozen=True, gc=False):
    """A request for a cycle now.

    A scheduled request answers a trigger's `due_ms` under its schedule epoch, and begins a cycle only in a flow that is
    running. The cycle begins at the planned time `planned_ms` (0 when none is to begin), which lies ahead with `ahead`;
    `next_ms` is due after it (0 for none), and the planned times `missed` are passed over. With `queued`, the
    store knows `planned_ms`, the time that has waited longest in the flow's queue, and the `run_id` that was asked for
    when that time was due. RunFlow sets none of these.

    A cycle of a backfill is planned at the backfill's position; such a cycle, or one with a `parent`, begins now,
    whatever other cycles are open. `check_in_ms` is when to look after the run if nothing is heard of it. `replaces` is
    the cycle number that the same run (`run_id`) had until another run was found to hold that number (-1 for none), and
    `at_least` is the lowest number it may get. For an `event`, `planned_ms` and `due_ms` are when it came, `next_ms` is
    the standby time in the flow's record, and the schedule epoch is the one under which the event came.
    """

    shape: CycleShape
    run_id: str
    origin: CycleOrigin
    check_in_ms: int
    planned_ms: int = 0
    due_ms: int = 0
    ahead: bool = False
    next_ms: int = 0
    missed: Span | None = None
    queued: bool = False
    schedule_epoch: int = 0
    inputs_json: str = ""
    traceparent: str = ""
    request: RememberedRequest | None = None
    replaces: int = -1
    at_least: int = 0
    backfill: BackfillStep | None = None
    parent: Parent | None = None
    event: EventFiring | None = None

    @property
    def scheduled(self) -> bool:
        """Whether the flow's schedule asks for the cycle."""
        return self.origin is CycleOrigin.SCHEDULE


@dataclass(frozen=True, slots=True)
class RerunRequest:
    """A request for a further run of the cycle whose latest run was `source` when it was read."""

    source: ChainState
    run_id: str
    rerun: Rerun
    check_in_ms: int
    timeout_ms: int
    inputs_json: str = ""
    traceparent: str = ""
    request: RememberedRequest | None = None

    def first_state(self, start_ms: int) -> ChainState:
        """Return the first state, at version 1, of the run that began at `start_ms`."""
        name = self.source.name
        facts = structs.replace(
            self.source.facts,
            run_id=self.run_id,
            start_ms=start_ms,
            deadline_ms=start_ms + self.timeout_ms if self.timeout_ms else 0,
            inputs_json=self.inputs_json,
            traceparent=self.traceparent,
            rerun=self.rerun,
            backfill_id=0,
            parent=None,
        )
        # Nodes whose results are kept may have set variables that later nodes read, and the result of the cycle.
        notes = Notes(memory=self.source.notes.memory, result_json=self.source.notes.result_json)
        return ChainState(name._replace(run=name.run + 1), facts, 1, notes=notes)


class BeginOutcome(StrEnum):
    """What became of a BeginRequest or RerunRequest."""

    BEGUN = "begun"
    DUPLICATE = "duplicate"
    OVERLAP = "overlap"
    SETTLED = "settled"
    NOT_RUNNING = "not_running"
    STALE_EPOCH = "stale_epoch"
    NOT_FOUND = "not_found"
    DELETING = "deleting"
    REVISION_CHANGED = "revision_changed"
    REUSED = "reused"
    OVERTAKEN = "overtaken"
    NOT_ENDED = "not_ended"
    NOT_LATEST = "not_latest"
    EARLY = "early"
    UNKNOWN_ZONE = "unknown_zone"
    UNREADABLE = "unreadable"


class BeginAnswer(msgspec.Struct, frozen=True, gc=False):
    """Answer to a BeginRequest.

    `run` names the cycle that has begun, the cycle that had already begun for the same planned time or request
    (`duplicate`), or the cycle that stands in the way (`overlap`). `settled` means that nothing begins at the planned
    time: it was missed, skipped, queued or dropped, just now or earlier. `early` means that it is not due yet, and that
    a running cycle may have ended by then. `next_ms` is the next planned time of the flow's schedule, 0 for none.
    `state` is set when the cycle has begun, `stopping` when running cycles were asked to make way. A rerun is refused
    when the source run has `not_ended` or is `not_latest`; in the latter case `run` names the latest run. `not_found`
    means that there is no such flow, or no such run to replace any more, `unknown_zone` that the times of its schedule
    cannot be computed here, `unreadable` that somebody has changed a record of the flow by hand so that it cannot be
    read.
    """

    outcome: BeginOutcome
    run: RunName | None = None
    run_id: str = ""
    next_ms: int = 0
    revision: int = 0
    state: ChainState | None = None
    stopping: bool = False


def begun_state(request: BeginRequest, run: RunName, start_ms: int, planned_ms: int) -> ChainState:
    """Return the first state, at version 1, of the run that began at `start_ms`; `planned_ms` of 0 means `start_ms`."""
    shape = request.shape
    return ChainState(
        run,
        CycleFacts(
            request.run_id,
            shape.user_id,
            shape.revision,
            request.origin,
            planned_ms or start_ms,
            start_ms,
            start_ms + shape.timeout_ms if shape.timeout_ms else 0,
            len(shape.node_ids),
            shape.component_count,
            shape.failure_policy,
            request.inputs_json,
            request.traceparent,
            shape.keep_cycles,
            shape.keep_for_ms,
            handlers=shape.handlers,
            backfill_id=request.backfill.backfill_id if request.backfill else 0,
            parent=request.parent,
            digest=shape.digest,
            runs_flows=shape.runs_flows,
        ),
        1,
    )
