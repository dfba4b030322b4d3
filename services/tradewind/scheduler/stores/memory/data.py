"""The records of the stores in memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tradewind.scheduler.domain.backfill import Backfill
from tradewind.scheduler.domain.bulk_job import BulkJob
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.ended_run import EndedRun
from tradewind.scheduler.domain.firing import Firing
from tradewind.scheduler.domain.flow_definition import OverlapPolicy
from tradewind.scheduler.domain.flow_record import FlowStop, Pause, RememberedRequest
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.log_line import LogLevel, LogLine, LogSource
from tradewind.scheduler.domain.memory import NO_MEMORY, Memory
from tradewind.scheduler.domain.revision import Revision
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.schedule_definition import ScheduleDefinition
from tradewind.scheduler.ports.changes import RunChange
from tradewind.scheduler.ports.owning import Epochs
from tradewind.scheduler.ports.waking import WakeUp
from tradewind.server.partitions import partition_of

LOG_CYCLES = 100
LOG_LINES = 1000
FIRINGS = 1000
QUEUE = 100
BLOCKED_MS = 300_000
"""How long a flow is left alone whose planned times wait for an open cycle; the end of a cycle makes it sooner.

Likewise a backfill that can begin no cycle.
"""
RECENT, REMEMBERED_MS = 50, 24 * 3600 * 1000
"""Among how many of a flow's newest firings, and for how long, an event is known that comes again at another time."""
RETENTION_MS = 7 * 24 * 3600 * 1000
TOMBSTONE_MS = 3600 * 1000


@dataclass(slots=True)
class BackfillRecord:
    """A backfill, the outcomes of its planned times, and when the record expires (0 while it is under way).

    Nobody looks at it before `look_ms`.
    """

    backfill: Backfill
    request: RememberedRequest | None = None
    firings: dict[int, Firing] = field(default_factory=dict)
    expires_ms: int = 0
    look_ms: int = 0


@dataclass(frozen=True, slots=True, order=True)
class Waiting:
    """A planned time that waits for a running cycle, with the id of the run that is to begin.

    For an event, also with its id and the inputs of its cycle.
    """

    planned_ms: int
    event_id: str
    run_id: str
    inputs_json: str


@dataclass(slots=True)
class Flow:
    """A flow; `runs` holds its chain states, `open` the runs that have not ended and whether they are stopping.

    `revisions` holds earlier definitions, `history` the facts about them and the current one. `firings` holds the
    outcomes of planned times, `queued` the planned times that wait, to be tried from `retry_ms` on. `fired` counts the
    cycles of its schedule that have begun or wait since the flow was started; that start raised the schedule epoch to
    `started_epoch`. `failures` counts failed cycles in a row. `filling` maps open runs to their backfills, or to 0 if
    they run for a node of another flow.
    """

    flow_id: str
    user_id: str
    status: FlowStatus
    config_json: str
    structure_json: str
    labels: tuple[tuple[str, str], ...]
    digest: str
    schedule: ScheduleDefinition
    overlap: OverlapPolicy
    keep_cycles: int
    created_ms: int
    updated_ms: int
    schedule_epoch: int
    pause_after_failures: int = 0
    revision: int = 1
    last_cycle: int = -1
    next_execution_ms: int = 0
    anchor_ms: int = 0
    runs: dict[RunName, "Run"] = field(default_factory=dict)
    open: dict[RunName, bool] = field(default_factory=dict)
    firings: dict[int, Firing] = field(default_factory=dict)
    queued: list[Waiting] = field(default_factory=list)
    retry_ms: int = 0
    fired: int = 0
    started_epoch: int = 0
    failures: int = 0
    pause: Pause | None = None
    stop: FlowStop | None = None
    revisions: dict[int, str] = field(default_factory=dict)
    history: dict[int, Revision] = field(default_factory=dict)
    logs: dict[int, list[LogLine]] = field(default_factory=dict)
    request: RememberedRequest | None = None
    memory: Memory = NO_MEMORY
    backfills: dict[int, BackfillRecord] = field(default_factory=dict)
    backfill_count: int = 0
    filling: dict[RunName, int] = field(default_factory=dict)

    @property
    def blocking_runs(self) -> list[RunName]:
        """The runs that have not ended, except reruns, runs of backfills and runs for nodes of other flows."""
        return [name for name in self.open if not name.run and name not in self.filling]


@dataclass(slots=True)
class Run:
    """A run's chain state, and when it expires (0 while it is open)."""

    state: ChainState
    request: RememberedRequest | None = None
    expires_ms: int = 0


@dataclass(frozen=True, slots=True)
class FirstAnswer:
    """The first answer to a request, and until when it is remembered."""

    expires_ms: int
    payload: str
    run: RunName | None
    run_id: str


class Data:
    """Everything on record. No method awaits, so each is atomic."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._swept_ms = 0
        self.flows: dict[str, Flow] = {}
        self.open: dict[RunName, int] = {}
        self.outbox: dict[str, int] = {}
        self.requests: dict[str, FirstAnswer] = {}
        self.tombstones: dict[str, tuple[int, int]] = {}
        self.ends: dict[int, list[EndedRun]] = {}
        self.returns: dict[int, list[EndedRun]] = {}
        self.jobs: dict[str, tuple[BulkJob, str]] = {}
        self.epochs: dict[int, int] = {}
        self.owners: dict[int, str] = {}
        self.replicas: dict[str, int] = {}
        self.listeners: dict[int, list[Callable[[Sequence[RunChange]], None]]] = {}
        self.wake_listeners: list[Callable[[WakeUp], None]] = []

    def now(self) -> int:
        """Return the time, after removing everything that has expired."""
        now = self._clock()
        if now == self._swept_ms:
            return now
        self._swept_ms = now
        for flow in self.flows.values():
            for name, run in list(flow.runs.items()):
                if run.expires_ms and run.expires_ms <= now:
                    self.remove_run(flow, name)
            for backfill_id, record in list(flow.backfills.items()):
                if record.expires_ms and record.expires_ms <= now:
                    del flow.backfills[backfill_id]
        self.requests = {key: first for key, first in self.requests.items() if first.expires_ms > now}
        self.tombstones = {key: value for key, value in self.tombstones.items() if value[0] > now}
        kept_ms = now - RETENTION_MS
        self.jobs = {key: (job, text) for key, (job, text) in self.jobs.items() if not 0 < job.ended_ms <= kept_ms}
        return now

    def overtaken(self, flow_id: str, epochs: Epochs) -> bool:
        """Say whether somebody with a higher epoch than the caller's owns the flow's partition."""
        partition = partition_of(flow_id)
        return partition in epochs and self.epochs.get(partition, 0) > epochs[partition]

    def first_answer(self, request: RememberedRequest) -> FirstAnswer | None:
        """Return the first answer to a request."""
        return self.requests.get(request.name)

    def remember(self, request: RememberedRequest, now: int, run: RunName | None = None, run_id: str = "") -> None:
        """Remember the answer to a request."""
        first = FirstAnswer(now + request.lifetime_ms, request.payload, run, run_id)
        self.requests[request.name] = first

    def forget(self, request: RememberedRequest | None) -> None:
        """Forget the answer to a request."""
        if request is not None:
            self.requests.pop(request.name, None)

    def find_run(self, name: RunName) -> Run | None:
        """Return a run's records."""
        flow = self.flows.get(name.flow_id)
        return flow.runs.get(name) if flow else None

    def append_log_line(self, flow: Flow, cycle: int, level: LogLevel, source: LogSource, text: str) -> None:
        """Append a line to a cycle's log."""
        now = self._clock()
        lines = flow.logs.setdefault(cycle, [])
        lines.append(LogLine(f"{now}-{len(lines)}", flow.flow_id, cycle, "", level, source, text, now))
        del lines[:-LOG_LINES]

    def publish(self, state: ChainState) -> None:
        """Tell the listeners of the partition the new state of a run."""
        self._notify(RunChange(state.name, state.version, lambda before: state))

    def publish_removal(self, flow_id: str) -> None:
        """Tell the listeners of the partition that a flow is gone."""
        self._notify(RunChange(RunName(flow_id, -1), 0, lambda before: None))

    def _notify(self, change: RunChange) -> None:
        for listener in list(self.listeners.get(partition_of(change.run.flow_id), ())):
            listener([change])

    def remove_run(self, flow: Flow, name: RunName) -> None:
        """Remove everything that belongs to a run."""
        flow.runs.pop(name, None)
        flow.open.pop(name, None)
        flow.filling.pop(name, None)
        if not any(other.cycle == name.cycle for other in flow.runs):
            flow.logs.pop(name.cycle, None)
        self.open.pop(name, None)
