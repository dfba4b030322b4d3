"""The chain state of a run: what has become of its components so far.

Values that are created for every run, here and elsewhere, are structs: a named tuple takes three times as long to
create, and seven times to copy with a change; a frozen dataclass takes twelve and thirty times as long. None of them
refers back to itself, so the garbage collector need not look at them.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntFlag, StrEnum
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from tradewind.scheduler.domain.cycle_outline import CycleOutline
from tradewind.scheduler.domain.cycle_status import CycleStatus, is_terminal
from tradewind.scheduler.domain.failure_policy import FailurePolicy
from tradewind.scheduler.domain.flow_definition import KEEP_CYCLES
from tradewind.scheduler.domain.handlers import Handlers, Phase
from tradewind.scheduler.domain.memory import NO_MEMORY, Memory
from tradewind.scheduler.domain.parent import Parent
from tradewind.scheduler.domain.rerun import Rerun
from tradewind.scheduler.domain.run_name import RunName

STATUS = "status"
"""Field: the status; a terminal status comes with the end time."""
REASON = "reason"
"""Field: why the run waits, or ended as it did."""
STOP = "stop"
"""Field: the request to stop."""
SUBMITTED = "submitted_at"
"""Field: since when the node task manager is known to have the run."""
ERROR = "error"
"""Field: the code of the error that kept the run from completing."""
MEMORY = "variables"
"""Field: the variables that the run's nodes keep."""
RESULT = "result"
"""Field: the run's result, as a node gave it."""
_COMPONENT = "component:"


def component_field(component_id: str) -> str:
    """Return the name of the field that holds the end of one component."""
    return _COMPONENT + component_id


class CycleOrigin(StrEnum):
    """What made a cycle begin."""

    SCHEDULE = "schedule"
    RUN_FLOW = "run_flow"
    BACKFILL = "backfill"
    SUB_FLOW = "sub_flow"


class ComponentEnd(NamedTuple):
    """How many nodes of a finished component ended in each way, and how many of its sinks completed."""

    completed: int = 0
    failed: int = 0
    terminated: int = 0
    skipped: int = 0
    sinks_completed: int = 0

    @classmethod
    def total(cls, ends: Collection["ComponentEnd"]) -> "ComponentEnd":
        """Return the sum of several ends."""
        return cls(*(sum(column) for column in zip(*ends, strict=True)))


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Who wants a run to stop, and why.

    `timeout` is set when the run's deadline stops it, `forced` when the nodes that handle its outcome are to stop too.
    `request_id` is the id of the call that asked for the stop, empty for none.
    """

    by: str
    reason: str
    at_ms: int
    timeout: bool = False
    forced: bool = False
    request_id: str = ""


class CycleFacts(msgspec.Struct, frozen=True, gc=False):
    """The facts a run began with; they never change. Times in milliseconds since the epoch, 0 for none.

    `keep_cycles` is how many ended cycles of the flow stay on record when this run ends, `keep_for_ms` how long this
    run stays, 0 for the default. `rerun` is set unless this is the first run of its cycle. `backfill_id` is the
    backfill that the run belongs to, 0 for none. `parent` is the node of another flow that it runs for. `digest` and
    `runs_flows` are as in CycleShape.
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
    """Rarely used fields of the chain state. `error` and `result_json` are "" for none."""

    error: str = ""
    memory: Memory = NO_MEMORY
    result_json: str = ""


NO_NOTES = Notes()
_NO_COMPONENTS: Mapping[str, ComponentEnd] = MappingProxyType({})


class ChainState(msgspec.Struct, frozen=True, gc=False):
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
    def rank(self) -> tuple[bool, int, int]:
        """Its place among the states of its run: by version, the end last.

        A store that has lost its last second gives out versions again. The end may thus get a lower version than a
        state that was published before. If an end is lost, the run ends once more, perhaps in the same version.
        """
        return is_terminal(self.status), self.version, self.end_ms

    @property
    def outline(self) -> CycleOutline:
        """What the run is chosen by."""
        return CycleOutline(self.name, self.status, self.facts.start_ms, self.stop.by if self.stop else "")

    @property
    def all_finished(self) -> bool:
        """Whether every component has ended."""
        return len(self.components) >= self.facts.component_count

    @property
    def phase(self) -> Phase | None:
        """The phase of the run, None when no nodes handle its outcome."""
        handlers = self.facts.handlers
        return handlers.phase(self.components, self.facts.component_count) if handlers is not None else None

    def counts(self) -> ComponentEnd:
        """Return the sum over all components that have ended."""
        if len(self.components) == 1:
            return next(iter(self.components.values()))
        return ComponentEnd.total(self.components.values())


class UpdateOutcome(StrEnum):
    """The outcome of a compare-and-set. An outage of the store is not an outcome: it is raised.

    `unreadable` means that a record it needs has been changed by hand so that it cannot be read.
    """

    OK = "ok"
    CONFLICT = "conflict"
    MISSING = "missing"
    TERMINAL = "terminal"
    OVERTAKEN = "overtaken"
    UNREADABLE = "unreadable"


class FollowUp(IntFlag):
    """Work that the end of a run leads to.

    In order: go on with planned times that waited for the end, also of a backfill; notify the trigger service that the
    end paused the flow; publish the end to listeners; return the end to the node of another flow.
    """

    ADVANCE_QUEUE = 1
    SETTLE_OUTBOX = 2
    PUBLISH_END = 4
    RETURN_END = 8


class UpdateResult(msgspec.Struct, frozen=True, gc=False):
    """Answer to a compare-and-set.

    `version` is the version on record afterwards, `end_ms` is set when the write ended the run, and `follow_up` is a
    sum of FollowUp.
    """

    outcome: UpdateOutcome
    version: int = 0
    end_ms: int = 0
    follow_up: int = 0

    @property
    def ok(self) -> bool:
        """Whether it was written."""
        return self.outcome is UpdateOutcome.OK
