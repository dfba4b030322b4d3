"""Components of a run, and what a run consists of when it is submitted."""

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import StopMark


class ComponentStatus(StrEnum):
    """Where a component of a run stands."""

    RUNNING = "running"
    FINISHED = "finished"


@dataclass(frozen=True)
class Component:
    """A component on record; `completed` to `skipped` count its terminal nodes.

    `cached` of the completed nodes did not run, since their outputs were in a cache. Only ad-hoc runs have `node_type`
    and `running`, the number of nodes leased to workers.
    """

    run: RunName
    run_id: str
    component_id: str
    status: ComponentStatus
    user_id: str
    plan: str
    nodes: int
    completed: int = 0
    failed: int = 0
    terminated: int = 0
    skipped: int = 0
    sinks_completed: int = 0
    submitted_at: int = 0
    finished_at: int = 0
    stop: StopMark | None = None
    node_type: str = ""
    running: int = 0
    cached: int = 0
    withheld: bool = False
    """Whether it waits to be released."""

    @property
    def open(self) -> int:
        """How many of its nodes are not terminal."""
        return self.nodes - self.completed - self.failed - self.terminated - self.skipped


@dataclass(frozen=True, slots=True)
class Release:
    """A withheld component, to begin with `inputs_json` ("" for the run's inputs), or to skip for the reason `skip`."""

    component_id: str
    inputs_json: str = ""
    skip: str = ""


class RunSubmission(msgspec.Struct, frozen=True, gc=False):
    """A run to be carried out. `components` pairs each component's id with its plan's digest.

    Partition -1, whose events go to nobody, marks an ad-hoc task or a batch; all its nodes are of `node_type`.
    After its end the flow keeps its newest `keep_cycles` runs, and keeps this run for `keep_for_ms`; 0 means the
    default. A rerun names the run of its cycle whose results it keeps, by number (`source`, otherwise -1) and run id,
    and in `kept`, for each component, the places of the nodes to keep; their predecessors are kept as well.
    `withheld` components begin only once they are released, and stopping the run spares them.
    """

    run: RunName
    run_id: str
    user_id: str
    components: tuple[tuple[str, str], ...]
    partition: int
    inputs_json: str = ""
    traceparent: str = ""
    planned_ms: int = 0
    begun_ms: int = 0
    node_type: str = ""
    keep_cycles: int = 0
    keep_for_ms: int = 0
    source: int = -1
    source_id: str = ""
    kept: tuple[tuple[str, tuple[int, ...]], ...] = ()
    withheld: tuple[str, ...] = ()


class SubmitOutcome(StrEnum):
    """The outcome of a submission."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    PLAN_UNKNOWN = "plan_unknown"
    RUN_CONFLICT = "run_conflict"
    EVENTS_FULL = "events_full"
    FLOW_PURGED = "flow_purged"
    QUEUE_FULL = "queue_full"
    RESULTS_EXPIRED = "results_expired"


class SubmitResult(msgspec.Struct, frozen=True, gc=False):
    """Answer to one submission."""

    outcome: SubmitOutcome
    unknown_plans: tuple[str, ...] = ()
    existing_run_id: str = ""
