"""Beginning a cycle: what is asked for, and what may be answered."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

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

    `digest` is that of the registration, shortened, "" for whichever stands: the number alone may have been another
    revision's, of a flow that was deleted, or before the store lost its last second. `runs_flows` says whether nodes
    of it run cycles of other flows.
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
    """The event, by its id, for which a cycle is to begin; or why none is to: `reason`, "" to begin one.

    Then `outcome` is what it ends as.
    """

    event_id: str
    outcome: FiringOutcome = FiringOutcome.FIRED
    reason: str = ""


class BeginRequest(NamedTuple):
    """A wish for a cycle now.

    A scheduled one answers a trigger's `due_ms` under its schedule epoch, and begins only in a running flow: at the
    planned time `planned_ms`, 0 when none is to begin (`ahead`: which is still to come), with `next_ms` due after it
    (0: none) and `missed` passed over. With `queued` it is the planned time that waits longest in the flow's queue;
    by RunFlow there is none of these. One of a backfill is planned at the position of that, whatever else is open;
    one with a `parent` begins now, whatever else is. `check_in_ms` is when to look after it if nothing is heard of
    it. `replaces` is the number that the same run (`run_id`) had before somebody else's run was found to stand under
    it (-1 for none), and `at_least` the lowest number it may get. For an `event`, `planned_ms` and `due_ms` are when it
    came, `next_ms` is what stands by in the flow's record, and the schedule epoch is the one under which it came.
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
        """Whether the flow's schedule asks for it."""
        return self.origin is CycleOrigin.SCHEDULE


@dataclass(frozen=True, slots=True)
class RerunRequest:
    """A wish for a further run of the cycle whose latest run is `source`, as it stood when it was read."""

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
        facts = self.source.facts._replace(
            run_id=self.run_id,
            start_ms=start_ms,
            deadline_ms=start_ms + self.timeout_ms if self.timeout_ms else 0,
            inputs_json=self.inputs_json,
            traceparent=self.traceparent,
            rerun=self.rerun,
            backfill_id=0,
            parent=None,
        )
        # Nodes whose results are kept may have set variables that later ones read.
        notes = Notes(memory=self.source.notes.memory)
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


class BeginAnswer(NamedTuple):
    """Answer to a BeginRequest.

    `run` names the cycle that has begun, the one that had begun for the same planned time or request (`duplicate`), or
    the one that stands in the way (`overlap`). `settled` is what a planned time is at which nothing begins: it was
    missed, skipped, queued or dropped, now or before. `early`: it is not due yet, and a cycle that runs may have ended
    by then. `next_ms` is what the flow's schedule plans next, 0 for nothing.
    `state` is there when it has begun; `stopping` when running cycles were asked to make way. A rerun is refused when
    the run before has `not_ended`, or is `not_latest`: then `run` names the latest.
    """

    outcome: BeginOutcome
    run: RunName | None = None
    run_id: str = ""
    next_ms: int = 0
    revision: int = 0
    state: ChainState | None = None
    stopping: bool = False


def begun_state(request: BeginRequest, run: RunName, start_ms: int, planned_ms: int) -> ChainState:
    """Return the first state, at version 1, of the run that began at `start_ms`; `planned_ms` is 0 for now."""
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
