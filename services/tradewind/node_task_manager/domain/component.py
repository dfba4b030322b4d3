"""Components of a run, and what a run consists of when it is submitted."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import StopMark


class ComponentStatus(StrEnum):
    """Where a component of a run stands."""

    RUNNING = "running"
    FINISHED = "finished"


@dataclass(frozen=True)
class Component:
    """A component on record; `completed` to `skipped` count its terminal nodes.

    `cached` of those completed did not run, since their outputs were in a cache. `node_type`, and `running`, how many
    nodes are leased to workers, are kept of ad-hoc runs only.
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
    """A component that was withheld, to begin with `inputs_json` ("" for those of the run), or to be skipped (why)."""

    component_id: str
    inputs_json: str = ""
    skip: str = ""


class RunSubmission(NamedTuple):
    """A run to be carried out. `components` pairs each component's id with its plan's digest.

    Nobody hears of events in partition -1: the run is an ad-hoc task or a batch, all of whose nodes are of `node_type`.
    When it has ended its flow keeps the newest `keep_cycles` runs, and this one for `keep_for_ms`; 0 is the default.
    A rerun names the run of its cycle that it keeps results of, by number (`source`, else -1) and run_id, and in `kept`
    the places of the nodes of each component whose results it keeps; what is before such a node is kept as well.
    Components that are `withheld` do not begin before they are released, and the stop of the run spares them.
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
    """What became of a submission."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    PLAN_UNKNOWN = "plan_unknown"
    RUN_CONFLICT = "run_conflict"
    EVENTS_FULL = "events_full"
    FLOW_PURGED = "flow_purged"
    QUEUE_FULL = "queue_full"
    RESULTS_EXPIRED = "results_expired"


@dataclass(frozen=True, slots=True)
class SubmitResult:
    """Answer to one submission."""

    outcome: SubmitOutcome
    unknown_plans: tuple[str, ...] = ()
    existing_run_id: str = ""
