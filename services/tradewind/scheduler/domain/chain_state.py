"""The chain state of a run: what became of its components so far.

What is made anew for each run, here and in `beginning`, is a tuple: a frozen dataclass takes five times as long.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntFlag, StrEnum
from types import MappingProxyType
from typing import NamedTuple

from tradewind.scheduler.domain.cycle_status import CycleStatus, is_terminal
from tradewind.scheduler.domain.failure_policy import FailurePolicy
from tradewind.scheduler.domain.flow_definition import KEEP_CYCLES
from tradewind.scheduler.domain.handlers import Handlers, Phase
from tradewind.scheduler.domain.memory import NO_MEMORY, Memory
from tradewind.scheduler.domain.parent import Parent
from tradewind.scheduler.domain.rerun import Rerun
from tradewind.scheduler.domain.run_name import RunName

STATUS = "status"
"""Field: the status, and with a terminal one the end time."""
REASON = "reason"
"""Field: why it waits, or ended as it did."""
STOP = "stop"
"""Field: the request to stop."""
SUBMITTED = "submitted_at"
"""Field: since when the node task manager is known to have it."""
ERROR = "error"
"""Field: the code of what kept it from completing."""
MEMORY = "variables"
"""Field: the variables that its nodes keep."""
RESULT = "result"
"""Field: what a node said that it gives."""
_COMPONENT = "component:"


def component_field(component_id: str) -> str:
    """Return the name of the field that holds what became of one component."""
    return _COMPONENT + component_id


class CycleOrigin(StrEnum):
    """What made a cycle begin."""

    SCHEDULE = "schedule"
    RUN_FLOW = "run_flow"
    BACKFILL = "backfill"
    SUB_FLOW = "sub_flow"


class ComponentEnd(NamedTuple):
    """How many nodes of a finished component ended how, and how many of its sinks completed."""

    completed: int = 0
    failed: int = 0
    terminated: int = 0
    skipped: int = 0
    sinks_completed: int = 0


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Who wants a run to stop, and why; `timeout` when its deadline does, `forced` with what handles its outcome.

    `request_id` is that of the call which asked for it, empty for none.
    """

    by: str
    reason: str
    at_ms: int
    timeout: bool = False
    forced: bool = False
    request_id: str = ""


class CycleFacts(NamedTuple):
    """What a run began with; never changes. Times in milliseconds since the epoch, 0 for none.

    `keep_cycles` is how many ended cycles of its flow stay on record when it ends, `keep_for_ms` for how long it does,
    0 for the default. `rerun` is there when it is not the first run of its cycle, `backfill_id` the backfill that it is
    of, 0 for none, `parent` the node of another flow that it runs for. `digest` and `runs_flows` are as in CycleShape.
    """

    run_id: str
    user_id: str
    revision: int
    origin: CycleOrigin
    planned_ms: int
    start_ms: int
    deadline_ms: int
    node_count: int
    component_count: int
    failure_policy: FailurePolicy
    inputs_json: str = ""
    traceparent: str = ""
    keep_cycles: int = KEEP_CYCLES
    keep_for_ms: int = 0
    rerun: Rerun | None = None
    handlers: Handlers | None = None
    backfill_id: int = 0
    parent: Parent | None = None
    digest: str = ""
    runs_flows: bool = True


@dataclass(frozen=True, slots=True)
class Notes:
    """What only some runs have: each is a field of the chain state. `result_json` is "" for none, as is `error`."""

    error: str = ""
    memory: Memory = NO_MEMORY
    result_json: str = ""


NO_NOTES = Notes()
_NO_COMPONENTS: Mapping[str, ComponentEnd] = MappingProxyType({})


class ChainState(NamedTuple):
    """A run as it stands at `version`, which the store raises with each write."""

    name: RunName
    facts: CycleFacts
    version: int
    status: CycleStatus = CycleStatus.RUNNING
    components: Mapping[str, ComponentEnd] = _NO_COMPONENTS
    reason: str = ""
    stop: StopRequest | None = None
    submitted_ms: int = 0
    end_ms: int = 0
    notes: Notes = NO_NOTES

    @property
    def rank(self) -> tuple[bool, int]:
        """Where it comes among the states of its run: by version, and last its end.

        A store that lost its last second gives versions anew, and may give the end an earlier one than was told.
        """
        return is_terminal(self.status), self.version

    @property
    def all_finished(self) -> bool:
        """Whether every component has ended."""
        return len(self.components) >= self.facts.component_count

    @property
    def phase(self) -> Phase | None:
        """Where it is, None when nothing handles its outcome."""
        handlers = self.facts.handlers
        return handlers.phase(self.components, self.facts.component_count) if handlers is not None else None

    def counts(self) -> ComponentEnd:
        """Return the sum over all components that have ended."""
        if len(self.components) == 1:
            return next(iter(self.components.values()))
        return ComponentEnd(*(sum(column) for column in zip(*self.components.values(), strict=True)))


class UpdateOutcome(StrEnum):
    """What became of a compare-and-set. An outage of the store is none of these: it is raised."""

    OK = "ok"
    CONFLICT = "conflict"
    MISSING = "missing"
    TERMINAL = "terminal"
    OVERTAKEN = "overtaken"


class FollowUp(IntFlag):
    """What is to be done about an end.

    Go on with planned times that waited for it, also of a backfill; tell the trigger service that it paused its flow;
    tell who listens to ends; return it to the node of another flow.
    """

    QUEUE_MOVES = 1
    OUTBOX_FILLS = 2
    END_TOLD = 4
    END_RETURNED = 8


class UpdateResult(NamedTuple):
    """Answer to a compare-and-set; `version` is the one on record afterwards, `end_ms` set when it ended the run.

    `follow_up` is a sum of FollowUp.
    """

    outcome: UpdateOutcome
    version: int = 0
    end_ms: int = 0
    follow_up: int = 0

    @property
    def ok(self) -> bool:
        """Whether it was written."""
        return self.outcome is UpdateOutcome.OK
