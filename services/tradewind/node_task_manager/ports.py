"""What the node task manager asks of its store and of its neighbours.

Each store answers for one shard. Store errors (the store cannot be reached) come as the adapter's own exceptions and
never look like an answer. Every method that changes node tasks takes `vacancies`: ready node tasks go to them in the
same step, users in turn and oldest first, and are found in the effects.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar

from tradewind.node_task_manager.domain.caching import Entry
from tradewind.node_task_manager.domain.called import CalledWorker
from tradewind.node_task_manager.domain.component import Component, Release, RunSubmission, SubmitResult
from tradewind.node_task_manager.domain.fan_out import FanOutStep
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import NodeTask, StopMark
from tradewind.node_task_manager.domain.notification import Fact, Notification
from tradewind.node_task_manager.domain.plan import Plan, PlanNode
from tradewind.node_task_manager.domain.sub_flow import SubFlowEvent, SubFlowReport
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.domain.task_event import TaskEvent
from tradewind.node_task_manager.domain.waiting import Signal
from tradewind.node_task_manager.domain.work import Assignment, Effects, Held, Outcome, Postponed, Termination, Vacancy

Item = TypeVar("Item", covariant=True)


@dataclass(frozen=True, slots=True)
class Stretch(Generic[Item]):
    """What follows a position in a capped stream; after a `gap` some of that is gone, and this is all that is."""

    gap: bool
    entries: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Session:
    """A worker's new session, the nonces of named tokens that hold no lease, and what followed."""

    session: int
    lost: tuple[str, ...]
    effects: Effects


@dataclass(frozen=True, slots=True)
class Renewal:
    """What became of named leases: `lost` pairs nonces with the reason; assignments in `effects` are sent again."""

    session_current: bool
    lost: tuple[tuple[str, str], ...]
    lease_deadline: int
    effects: Effects


@dataclass(frozen=True, slots=True)
class Submitted:
    """Answers to submissions in their order, and what followed."""

    results: tuple[SubmitResult, ...]
    effects: Effects


@dataclass(frozen=True, slots=True)
class Purge:
    """How far the removal of a flow is."""

    removed: int
    done: bool
    effects: Effects


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What a step of cleaning did: `leads` is whether it was the caller's to do, `waits` that lapsed leases come first.

    `keys` counts what was looked at; `runs`, `node_tasks` and `entries` of indexes what was removed. The next step goes
    on at `place` of the list of all node tasks, None when that is through; there is `more` for it to do at once.
    """

    leads: bool
    waits: bool = False
    keys: int = 0
    runs: int = 0
    node_tasks: int = 0
    entries: int = 0
    place: int | None = None
    more: bool = False


@dataclass(frozen=True, slots=True)
class ComponentEvent:
    """Says that a component finished; `event_id` orders the events of a partition.

    `outputs` pairs handles with what the component's only sink, `sink`, has emitted; there when that is at most 1 KiB.
    """

    event_id: str
    partition: int
    run: str
    run_id: str
    component: str
    nodes: int
    completed: int
    failed: int
    terminated: int
    skipped: int
    sinks: int
    at: int
    stop: StopMark | None = None
    sink: str = ""
    outputs: tuple[tuple[str, str], ...] = ()


Event: TypeAlias = ComponentEvent | SubFlowEvent
"""What the scheduler hears of."""


@dataclass(frozen=True, slots=True)
class Queue:
    """What waits of a type and user: how many stand in line, which is next, and how many limits hold back beside it."""

    node_type: str
    user_id: str
    count: int
    first: str
    held_back: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a running node task is: 0 to 100, what it says and which step it is at."""

    task_id: str
    nonce: str
    progress: int
    message: str
    step: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A line that a node logged; `at` in epoch ms."""

    task_id: str
    nonce: str
    level: str
    source: str
    message: str
    at: int


@dataclass(frozen=True, slots=True)
class StoredLine:
    """A line as it is kept; `node_id` of an item of a mapped node is `<node>:<item>`."""

    log_id: str
    cycle: int
    run: int
    node_id: str
    level: str
    source: str
    message: str
    at: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Ready:
    """An assignment with all that its worker needs: its node of the plan, and values by input handle."""

    shard: int
    assignment: Assignment
    run: RunName
    node: PlanNode
    inputs: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def nonce(self) -> str:
        """What tells this lease from all others."""
        return self.assignment.nonce

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        values = sum(len(value) for _, group in self.inputs for value in group)
        return 500 + values + len(self.node.config_json) + len(self.assignment.run_inputs)


class WorkerLine(Protocol):
    """The way out to a connected worker; calls return at once and what they say is sent in order."""

    @property
    def full(self) -> bool:
        """Whether so much waits to be read by the worker that no more work may be given to it."""
        ...

    async def writable(self) -> None:
        """Return as soon as the line is not full, or is closed."""
        ...

    def assign(self, ready: Sequence[Ready]) -> None:
        """Give node tasks."""
        ...

    def terminate(self, shard: int, terminations: Sequence[Termination]) -> None:
        """Ask to stop node tasks."""
        ...

    def lose(self, shard: int, losses: Sequence[tuple[Held, str]]) -> None:
        """Say that attempts hold no lease any more, and why."""
        ...

    def expect(self, sequence: int, parts: int) -> None:
        """A message of the worker was heard: it has taken effect when its `parts` are acknowledged."""
        ...

    def acknowledge(self, sequence: int) -> None:
        """A part of a message has taken effect; say so when all of it has, and all before it."""
        ...

    def resync(self) -> None:
        """Ask for held tokens and recent outcomes once more: the store may have lost its last second."""
        ...

    def ping(self, number: int) -> None:
        """Ask for a sign of life."""
        ...

    def close(self, reason: str) -> None:
        """End the stream: a newer one of the same worker is there."""
        ...


class WorkerDirectory(Protocol):
    """Who is registered."""

    async def knows(self, worker_id: str) -> bool:
        """Say whether a worker is registered; True as well when nobody can tell."""
        ...


class CalledWorkerDirectory(Protocol):
    """Which workers want to be called."""

    async def called(self) -> Sequence[CalledWorker] | None:
        """Return those that are alive and have an api_url, in any order; None when nobody can tell."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """What a called worker said to node tasks: nonces of those that it runs, and why it runs none, or "".

    `full`: that was for want of room. `silent`: the connection broke before it said anything, and it may run them.
    """

    accepted: frozenset[str] = frozenset()
    refused: str = ""
    retry_after_s: float = 0.0
    full: bool = False
    silent: bool = False


class WorkerCalls(Protocol):
    """Calls one worker. Nothing here raises."""

    async def execute(self, ready: Sequence[Ready]) -> Answer:
        """Hand it node tasks, and return what it said within seconds."""
        ...

    async def terminate(self, shard: int, terminations: Sequence[Termination]) -> bool:
        """Ask it to stop node tasks; False when it did not hear."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class Replicas(Protocol):
    """The node task managers over the same store."""

    async def meet(self, name: str, keep_ms: int) -> Sequence[str]:
        """Say that this one is here for so long, and return the names of all that are, itself among them."""
        ...

    async def leave(self, name: str) -> None:
        """Say that this one is not here any more."""
        ...


class NodeTypes(Protocol):
    """What live workers can do."""

    async def offered(self, node_type: str) -> bool | None:
        """Say whether a live worker offers a node type; None when nobody can tell."""
        ...


class NodeTaskStore(Protocol):
    """Node tasks of one shard, and all that changes them."""

    async def submit(self, runs: Sequence[RunSubmission], vacancies: Sequence[Vacancy] = ()) -> Submitted:
        """Create runs. One that stands already is `duplicate`, another under its name `run_conflict`, one with plans
        that were not saved `plan_unknown`, one begun before its flow was purged `flow_purged`; none of these changes
        anything. A run with a stop mark begins stopped."""
        ...

    async def complete(self, outcomes: Sequence[Outcome], vacancies: Sequence[Vacancy] = ()) -> Effects:
        """End attempts that hold their lease; an outcome that took effect before is fine. `results` holds for each
        "" or why it was refused; a refused one changes nothing. Signals are delivered and successors released or
        skipped, transitively. One that is suspended holds no lease and no slot; when its wait ends, it is ready again
        or completed. Its total time counts on."""
        ...

    async def fan_out(self, steps: Sequence[FanOutStep], vacancies: Sequence[Vacancy] = ()) -> Effects:
        """Carry out offers of mapped nodes, at least one. A split node runs: its items become ready in order, at most
        `max_parallel` at once, and so do the next ones when some have ended; when too few can complete any more the
        rest is stopped and it fails, when all have ended it is offered to be joined. `results` holds for each "" or
        why it was refused: an offer is good until it is made anew (5 s) or the node task ends; a refused step changes
        nothing."""
        ...

    async def claim(self, vacancies: Sequence[Vacancy] = ()) -> Effects:
        """Give ready node tasks to vacancies, and go on with what is `todo`."""
        ...

    async def open_session(
        self, worker_id: str, incarnation: str, held: Sequence[Held], vacancies: Sequence[Vacancy] = ()
    ) -> Session:
        """Begin the worker's next session. Named node tasks whose lease stands stay with it; whatever else it had is
        given back, and counts as lost when the incarnation is another one."""
        ...

    async def begin_process(self, worker_id: str, incarnation: str) -> Effects:
        """Note which process is behind a worker that opens no stream. When it is known that another one was, all that
        the worker holds is given back and counts as lost; saying the same again changes nothing."""
        ...

    async def renew(self, worker_id: str, session: int, held: Sequence[Held]) -> Renewal:
        """Renew named leases up to the attempt's own time limit. What the session was given over 2 s ago and the
        worker does not name comes again as assignments; stops asked for come again as terminations."""
        ...

    async def give_back(
        self, worker_id: str, session: int, held: Sequence[Held] | None, vacancies: Sequence[Vacancy] = ()
    ) -> Effects:
        """Queue again the named node tasks of a worker, or with None all, as it is gone: then each counts as lost.

        Refused ("replaced") when the session is not its latest. A node task asked to stop becomes terminated.
        """
        ...

    async def postpone(self, postponed: Sequence[Postponed]) -> Effects:
        """Take node tasks back that their workers never got; each is ready again when its wait is over, or with its
        total time. Nothing counts against them. A node task asked to stop becomes terminated; one that does not hold
        its lease is left alone. `results`: "" for each that waits now, else "lost"."""
        ...

    async def hasten(self, task_ids: Sequence[str]) -> Effects:
        """Make postponed node tasks ready now; others are left alone. `results`: "" for each that is ready, else why
        not."""
        ...

    async def pass_on(self, worker_id: str, held: Held, to: str) -> Effects:
        """Hand a node task that a worker did not take to the worker `to`, as the same attempt with a nonce of its own
        and clocks that begin anew; nothing when the lease is not held any more or the node task is to stop."""
        ...

    async def reap(self, vacancies: Sequence[Vacancy] = ()) -> Effects:
        """Give back what outlived its lease (counting it as lost; the third time it fails), fail what outlived its
        timeout or its wait for a worker, terminate what did not stop in time. `results` names them."""
        ...

    def configure(self, config: SystemConfig) -> None:
        """Keep within these limits from now on; what began before counts under new ones once `reopen` has ended."""
        ...

    async def reopen(self, vacancies: Sequence[Vacancy] = ()) -> Effects:
        """Count what runs already under limits that are new, and look anew at all that limits held back: they have
        changed."""
        ...

    async def stop(self, run: RunName, run_id: str, component_id: str, reason: str, by: str, mark_ms: int) -> Effects:
        """Put down a stop mark for a component ("" for the run), also when nothing is there yet; skip what has not
        begun and ask what runs to stop. `results`: how many were skipped, how many asked."""
        ...

    async def release(self, run: RunName, run_id: str, components: Sequence[Release]) -> Effects:
        """Let components that were withheld begin, or skip them; those that are withheld no more are left alone."""
        ...

    async def terminate(self, task_id: str, component_id: str, index: int, reason: str, by: str) -> Effects:
        """Skip a node task that has not begun, terminate a suspended one, ask a running one to stop, of a mapped node
        all its items; `results` is ("unknown",) without its run, and for an item that has not begun."""
        ...

    async def signal(self, signal: Signal) -> Effects:
        """End the wait of a node task, whose attempt is the named one, or keep the signal for one that does not wait:
        it ends a later wait for a signal of its name that has no form. `results` is `resumed` or `kept`, also when the
        same request did so before; else `unknown`, `ended`, `stopping`, `full`, or `changed` when it waits, and is not
        believed to, or the other way round; then nothing is changed."""
        ...

    async def report_sub_flows(self, reports: Sequence[SubFlowReport]) -> Effects:
        """Take what became of cycles that node tasks wait for, each by itself.

        The results are "" where the node task waits, or until now waited, for that cycle, else why it does not. An end
        completes it, or fails its attempt.
        """
        ...

    async def unlist_dead_letter(self, user_id: str, task_id: str) -> None:
        """List a node task as dead letter no more; one that is not listed stays unlisted."""
        ...

    async def purge(self, flow_id: str) -> Purge:
        """Remove a bounded part of a flow; late outcomes and submissions of it are refused from the first call on."""
        ...

    async def clean(self, cleaner: str, place: int | None) -> Cleaned:
        """Remove a bounded part of what has ended and is kept no more, if `cleaner` leads or nobody does.

        Of a flow go the ended runs beyond its newest `keep_cycles`, among those that ended more than a minute ago and
        whose events are acknowledged; what is open stays. Indexes lose what has no record: the list of all node tasks
        from `place` on (0, or where the step before left off), unless that is None."""
        ...

    async def leave_cleaning(self, cleaner: str) -> None:
        """Lead no more: another one may at once."""
        ...

    async def record(self, progress: Sequence[Progress], lines: Sequence[Line]) -> int:
        """Keep progress (never falling within an attempt) and log lines of attempts that hold their lease or ended
        by themselves; return how many were kept."""
        ...


class NodeTaskReader(Protocol):
    """Looks at node tasks without changing them."""

    async def tasks(self, ids: Sequence[str], *, inputs: bool = False, outputs: bool = False) -> list[NodeTask | None]:
        """Return node tasks in the order of `ids`; None for one without a record."""
        ...

    async def components(self, wanted: Sequence[tuple[RunName, str]]) -> list[Component | None]:
        """Return components in the order of `wanted` (run, component id)."""
        ...

    async def component_ids(self, run: RunName) -> tuple[str, ...]:
        """Return the ids of a run's components in the order of submission; none for an unknown run."""
        ...

    async def held_by(self, worker_id: str) -> list[str]:
        """Return the ids of node tasks leased to a worker."""
        ...

    async def emitted(self, ids: Sequence[str]) -> list[tuple[tuple[str, str], ...]]:
        """Return what node tasks emitted, by handle, in the order of `ids`; nothing for one without a record."""
        ...

    async def run_inputs(self, run: RunName, component_id: str) -> str:
        """Return the inputs (JSON text) that entry nodes of a component get from its run, "" for none."""
        ...

    async def outputs(self, wanted: Sequence[tuple[str, str]]) -> list[str | None]:
        """Return emitted values of (node task, handle) in order, None for one that is not there."""
        ...

    async def lines(self, flow_id: str, cycle: int, after: str, limit: int) -> list[StoredLine]:
        """Return log lines after position `after` ("" for the first), oldest first."""
        ...

    async def run_lines(self, run: RunName, after: str, limit: int) -> list[StoredLine]:
        """Return log lines of an ad-hoc task or a batch, as `lines`."""
        ...

    async def dead_letters(self, user_id: str, after: tuple[int, str] | None, limit: int) -> list[tuple[int, str]]:
        """Return when (epoch ms) and which node tasks of a user were given up, the newest first; `after` is the last of
        the page before. Given up are those that lost too many workers, and those that failed for good though they may
        be tried more than once."""
        ...

    async def runs_of(
        self, user_id: str, kind: str, after: tuple[int, str] | None, limit: int
    ) -> list[tuple[int, str]]:
        """Return when each `task` or `batch` of a user was submitted and the name of its run, the newest first; those
        that follow `after`, which is one of them or was. A run is listed for as long as its records are kept."""
        ...


class QueueReader(Protocol):
    """Counts what stands in queues."""

    async def queues(self) -> list[Queue]:
        """Return each queue that has something in it, by type and user."""
        ...

    async def running(self, limit: int) -> tuple[int, list[str]]:
        """Return how many node tasks are leased, and the ids of up to `limit` of them."""
        ...

    async def held(self, limits: Sequence[str]) -> list[int]:
        """Return how many hold a slot of each limit, `running` standing for a lease; of `rate:<type>` in how
        many microseconds its bucket is full."""
        ...

    async def totals(self) -> dict[str, int]:
        """Return how many node tasks have ended, by status, and how many failed by code, as `failed:<code>`."""
        ...

    async def cleaned(self) -> dict[str, int]:
        """Return how many `runs` of flows, `node_tasks` and `entries` of indexes were removed by cleaning."""
        ...


class ConfigStore(Protocol):
    """Keeps the system's configuration."""

    async def load(self) -> SystemConfig:
        """Return the configuration, its default when none was ever written."""
        ...

    async def save(self, config: SystemConfig, expected: int) -> bool:
        """Replace the one of version `expected`; False, and nothing is changed, when another one stands."""
        ...


@dataclass(frozen=True, slots=True)
class CacheLook:
    """What a look into a cache found: a `result` (JSON text), or neither, when the caller is now the one to work it
    out; or another one does, at most `busy_ms` more unless it goes on. `generation` goes along with what is put in."""

    generation: str
    result: str = ""
    busy_ms: int = 0


class CacheStore(Protocol):
    """Results by name. Whatever it holds may vanish at any time; then it is not there, and nothing worse."""

    async def look(self, entry: Entry, token: str, flight_ms: int) -> CacheLook:
        """Look for a result; where there is none and nobody works it out, `token` does so from now on, for
        `flight_ms`. The same token may ask again."""
        ...

    async def keep(self, entry: Entry, token: str, generation: str, flight_ms: int) -> bool:
        """Work on a result for `flight_ms` from now on, 0 for no longer; False when `token` does not."""
        ...

    async def fill(
        self, entry: Entry, token: str, generation: str, result: str, ttl_ms: int, max_entries: int
    ) -> tuple[bool, int]:
        """Put in what `token` has worked out. Return whether it was put in, which it is not when another works it out
        by now or the cache was cleared meanwhile, and how many gave way to it."""
        ...

    async def clear(self, name: str) -> int:
        """Forget all results of a cache and refuse those under way; return how many were taken out."""
        ...

    async def size(self, name: str) -> int:
        """Return how many results a cache holds."""
        ...


class CacheStatistics(Protocol):
    """Counts what became of look-ups, as `<cache>:<what>`."""

    async def add(self, counts: Mapping[str, int]) -> None:
        """Add to the counts."""
        ...

    async def read(self) -> dict[str, int]:
        """Return all counts."""
        ...


class PlanStore(Protocol):
    """Keeps plans by digest; equal digests are equal plans."""

    async def save(self, plan: Plan, keep_ms: int | None = None) -> None:
        """Keep a plan while it is used and, unless `keep_ms` says else, for 30 d; saving it again is a no-op."""
        ...

    async def load(self, digest: str) -> Plan | None:
        """Return a plan, or None when it is unknown."""
        ...


class EventLog(Protocol):
    """Events of one shard for the scheduler, kept until they are acknowledged."""

    async def subscribe(self, partition: int, epoch: int) -> bool:
        """Raise the partition's epoch; False when a higher one is known."""
        ...

    async def read(self, after: dict[int, str], limit: int) -> list[Event]:
        """Return events of each partition after its position ("0" for the first kept), in order."""
        ...

    async def acknowledge(self, through: dict[int, str]) -> None:
        """Forget each partition's events up to a position."""
        ...


class Notices(Protocol):
    """Events of ad-hoc tasks, and what users are to know; written for the most part by what changes node tasks.

    Each task keeps its newest events, as long as its record, and each user the newest notifications, for 7 d.
    """

    async def task_events(self, run: str, after: str, limit: int) -> Stretch[TaskEvent]:
        """Return up to `limit` events of a task after a position, "0-0" for before the first, in order."""
        ...

    async def newest_task_event(self, run: str) -> TaskEvent | None:
        """Return the newest event of a task, None when none is kept."""
        ...

    async def publish(self, notifications: Sequence[tuple[str, str, Fact]]) -> list[bool]:
        """Keep notifications (user, key, fact); False for one whose key, unless "", came for the user within a day."""
        ...

    async def notifications(self, user_id: str, after: str, limit: int) -> Stretch[Notification]:
        """Return up to `limit` notifications of a user after a position, "0-0" for before the first, in order."""
        ...

    async def newest_notification(self, user_id: str) -> str:
        """Return the position of a user's newest notification, "0-0" when there is none."""
        ...

    async def list_notifications(self, user_id: str, before: str, limit: int) -> tuple[list[Notification], int]:
        """Return up to `limit` notifications, the newest first, from before a position ("" for the newest); and how
        many of all that are kept are not read."""
        ...

    async def mark_read(self, user_id: str, through: str) -> None:
        """Mark all up to a position as read, "" for all; what was read stays so."""
        ...
