"""What the scheduler needs of stores and of other services, one Protocol for each noun.

Every method of a store lets the store's errors through when it cannot be reached: an outage is never an answer. Methods
that take `epochs` act for the owner of the partitions named in it: what concerns one that somebody with a higher epoch
owns by now is answered `overtaken` and not done.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

from tradewind.api.node_task_manager.v1.node_task_manager_service_pb2 import ListNodeTasksResponse
from tradewind.api.node_task_manager.v1.node_task_pb2 import NodeTask
from tradewind.scheduler.domain.backfill import Backfill, BackfillDraft, BackfillOutcome
from tradewind.scheduler.domain.beginning import BeginAnswer, BeginRequest, RerunRequest
from tradewind.scheduler.domain.chain_state import ChainState, UpdateResult
from tradewind.scheduler.domain.component_plan import ComponentPlan
from tradewind.scheduler.domain.due import DueAnswer, DueFlow
from tradewind.scheduler.domain.firing import Firing
from tradewind.scheduler.domain.flow_record import (
    FlowRecord,
    FlowRegistration,
    RegisterOutcome,
    RememberedRequest,
    StatusAnswer,
    StatusChange,
)
from tradewind.scheduler.domain.log_line import LogLine
from tradewind.scheduler.domain.memory import Memory
from tradewind.scheduler.domain.node_types import NodeTypeCatalogue
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.run_update import RunUpdate
from tradewind.scheduler.domain.schedule_definition import ScheduleDefinition
from tradewind.scheduler.domain.sub_flow import Event
from tradewind.scheduler.domain.submission import ComponentSight, StopOrder, Submission, SubmitAnswer
from tradewind.server.faults import Unavailable

Member = TypeVar("Member")

Epochs = Mapping[int, int]
"""Partitions that the caller owns, each with the epoch under which it does."""

NOT_OWNER: Epochs = MappingProxyType({})
"""For callers that do not act as an owner: any replica may do what a client asks for."""


class FlowRecords(Protocol):
    """Flows on record."""

    async def register(self, registration: FlowRegistration) -> tuple[RegisterOutcome, int]:
        """Put a definition on record and return what became of it and the revision.

        A new revision keeps last_cycle, created_at and status; the digest on record changes nothing. A running flow
        whose schedule changed gets a higher schedule epoch and stands in the outbox. A request seen before answers
        `repeated`, or `reused` for another payload. Then a registration with an etag that is not the flow's is answered
        `moved`, or `not_found` without a flow, and changes nothing. One for the owner only is answered `not_owner` when
        the flow is another user's.

        The newest 100 revisions stay readable, the new one among them, and of the others those by which open runs go.
        """
        ...

    async def find(self, flow_ids: Sequence[str]) -> list[FlowRecord | None]:
        """Return flows in the order asked for, None where there is none."""
        ...

    async def owners(self, flow_ids: Sequence[str]) -> list[str | None]:
        """Return whose flows are, in the order asked for, None where there is none."""
        ...

    async def list_ids(self, after: str, limit: int) -> list[str]:
        """Return up to `limit` ids greater than `after`, in the order of their bytes, over all partitions."""
        ...

    async def change_status(self, change: StatusChange) -> StatusAnswer:
        """Move a flow to another status; a flow that is there already is left alone, but for its runs.

        A change raises the schedule epoch and puts the flow into the outbox; planned times that wait are dropped unless
        it runs on. Leaving `running` for good marks every open run as stopping, raises its version and makes it due for
        a look at once. A pause notes who, why, and what was planned next.
        """
        ...

    async def definition(self, flow_id: str, revision: int) -> str | None:
        """Return the definition of a revision that is on record, else None."""
        ...

    async def raise_schedule_epoch(self, flow_id: str) -> int:
        """Raise a flow's schedule epoch and return it; 0 when there is no flow."""
        ...

    async def remove_step(self, flow_id: str, cycles: int = 100) -> bool:
        """Remove up to `cycles` cycles of a flow that is being deleted, or with the last ones the flow.

        Returns True when nothing is left but a tombstone, which keeps later schedule epochs of this id higher.
        """
        ...


@dataclass(frozen=True, slots=True)
class DueCheck(Generic[Member]):
    """What of a partition wants a look: members due now, longest due first, and when the next one is (ms), if any."""

    due: tuple[Member, ...]
    next_ms: int | None


class Outbox(Protocol):
    """Flows whose schedule must still reach the trigger service, or that must still be removed."""

    async def check(self, partitions: Collection[int], limit: int) -> dict[int, DueCheck[str]]:
        """Return, for each partition, up to `limit` flows to be tried now."""
        ...

    async def settle(self, flow_id: str, schedule_epoch: int) -> bool:
        """Take a flow out that has this schedule epoch still; False when it has changed since."""
        ...

    async def postpone(self, flow_id: str, delay_ms: int) -> None:
        """Try a flow that is in the outbox again after `delay_ms`."""
        ...

    async def add(self, flow_id: str) -> None:
        """Have the trigger service told again what a flow's record says."""
        ...


@dataclass(frozen=True, slots=True)
class Tidied:
    """How far tidying is: go on after flow `after` unless it is `done`; how many cycles and entries of indexes went."""

    after: str
    done: bool
    trimmed: int = 0
    forgotten: int = 0


class CycleRecords(Protocol):
    """Cycles: beginning and reading them."""

    async def begin(self, requests: Sequence[BeginRequest], epochs: Epochs = NOT_OWNER) -> list[BeginAnswer]:
        """Begin cycles, each judged by itself, those of a partition in order; one round trip for all.

        Checks, in this order: the flow is there and not being deleted; the request was not seen before; a scheduled one
        carries a current schedule epoch, its flow is running, and its planned time was not answered before; the
        revision is current; unless overlap is `allow` no cycle is open. For a scheduled one the store notes what was
        missed and what is planned next, and, when a cycle is open, what becomes of the planned time by the flow's
        overlap policy: that is `settled`. Else the number after the latest is allocated, never one in use, and the run
        put on record at version 1, among the open ones. A flow of whose schedule nothing is left has completed.
        """
        ...

    async def begin_rerun(self, request: RerunRequest) -> BeginAnswer:
        """Begin a further run of a cycle: at version 1, among the open ones, of the revision of the run before.

        Checks that the flow is there and not being deleted, that the request was not seen before, and that the run
        before has ended and is the latest of its cycle. No overlap policy stands in its way, nor is it in anybody's.
        """
        ...

    async def first_answer(self, flow_id: str, request: RememberedRequest) -> BeginAnswer | None:
        """Return `duplicate` or `reused` for a request that was answered before, else None."""
        ...

    async def tidy(self, partition: int, after: str, epoch: int) -> Tidied:
        """Remove ended cycles beyond what their flows keep now, and index entries of expired ones.

        Does so for some flows behind `after` ("" for the first) in the order of their ids, for none when a later owner
        has the partition."""
        ...

    async def newest(self, flow_id: str, below: RunName | None, limit: int) -> list[ChainState]:
        """Return up to `limit` runs that are on record, newest first, from the one before `below`."""
        ...

    async def latest_run(self, flow_id: str, cycle: int) -> RunName | None:
        """Return the latest run of a cycle that was begun and not trimmed."""
        ...

    async def node_ids(self, run: RunName) -> frozenset[str]:
        """Return the node ids of a run."""
        ...


class ChainStateRepository(Protocol):
    """Chain states under compare-and-set. `CycleRecords.begin` is the first write of each, over version 0.

    Nothing here makes a record: what DeleteFlow removed cannot come back by a late write.
    """

    async def load(self, run: RunName) -> ChainState | None:
        """Return a copy of the state on record, None when there is none."""
        ...

    async def load_many(self, runs: Sequence[RunName]) -> list[ChainState | None]:
        """Return states in the order asked for."""
        ...

    async def try_update(self, state: ChainState, fields: Collection[str]) -> UpdateResult:
        """Write `fields` of a state over the version that it carries; the store raises the version.

        `conflict` when the record has another version, `missing` when there is none of this run_id, `terminal` when it
        has ended. With a terminal status the run ends: out of the open ones, end time set, and its records expire.
        """
        ...

    async def update_many(self, updates: Sequence[RunUpdate], epochs: Epochs = NOT_OWNER) -> list[UpdateResult]:
        """Do many updates, each by itself; one round trip for all.

        A run that ends also trims its flow's oldest ended cycles beyond keep_cycles, ends a flow whose schedule is over
        when nothing else of it is open, and pauses one in which too many cycles failed in a row.
        """
        ...


class FlowMemories(Protocol):
    """The variables that flows carry from cycle to cycle, under compare-and-set; they go with their flow."""

    async def load(self, flow_id: str) -> Memory | None:
        """Return a copy of the variables of a flow, None when there is no flow, or it is being deleted."""
        ...

    async def try_save(self, flow_id: str, memory: Memory) -> UpdateResult:
        """Write variables over those one version before; `conflict` when others are on record, `missing` as above."""
        ...


class OpenRuns(Protocol):
    """Runs that have begun and not ended, by the time of their next check."""

    async def check(self, partitions: Collection[int], limit: int) -> dict[int, DueCheck[RunName]]:
        """Return, for each partition, up to `limit` runs due for a look."""
        ...

    async def postpone(self, runs: Mapping[RunName, int]) -> None:
        """Look at open runs again after so many ms; runs that have ended meanwhile are left alone."""
        ...

    async def of_flow(self, flow_id: str, limit: int) -> list[RunName]:
        """Return up to `limit` open runs of a flow."""
        ...

    async def forget(self, run: RunName) -> None:
        """Take a run out that has no record any more."""
        ...


class Firings(Protocol):
    """What became of the planned times of flows; written by the scripts that decide it."""

    async def newest(self, flow_id: str, before_ms: int, limit: int, backfill_id: int = 0) -> list[Firing]:
        """Return up to `limit` lines, the latest planned time first, from before `before_ms` (0: the latest).

        Those of the flow, or of one backfill, which keeps a line for each of its times but those it begins next.
        """
        ...

    async def waiting(self, partitions: Collection[int], limit: int) -> list[str]:
        """Return flows with planned times that wait for a running cycle, up to `limit` of each partition."""
        ...


class Backfills(Protocol):
    """Backfills of flows. `CycleRecords.begin` begins their cycles and moves them on, the end of a run counts it."""

    async def create(self, draft: BackfillDraft) -> tuple[BackfillOutcome, int]:
        """Put a backfill on record, under way, and return what became of that, and its id.

        A request seen before answers `repeated` with the first id, or `reused` for another payload; `full` when too
        many of the flow are under way. The newest 100 of a flow are kept, 7 days from their end.
        """
        ...

    async def find(self, flow_id: str, backfill_ids: Sequence[int]) -> list[Backfill | None]:
        """Return backfills in the order asked for."""
        ...

    async def ids(self, flow_id: str) -> list[int]:
        """Return the ids of a flow's backfills, the newest first."""
        ...

    async def active(self, partitions: Collection[int], limit: int) -> list[tuple[str, int]]:
        """Return backfills that are under way, as flow and id, up to `limit` of each partition, the oldest first."""
        ...

    async def cancel(self, flow_id: str, backfill_id: int, reason: str) -> bool:
        """Begin no more of a backfill that is under way, and say whether it was.

        What runs goes on; the times that were left are on record as dropped.
        """
        ...


class LogLines(Protocol):
    """The scheduler's own lines of cycles; they are written by the scripts that begin, stop and end runs."""

    async def read(self, flow_id: str, cycle: int) -> list[LogLine]:
        """Return the lines of a cycle, oldest first, at most 1000."""
        ...


class Partitions(Protocol):
    """Who owns which partition."""

    async def take(self, partition: int, *, force: bool = False) -> int:
        """Take a partition whose lease has lapsed, or with `force` from whoever holds it.

        Returns the new epoch, higher than any before, or 0 when somebody holds it.
        """
        ...

    async def renew(self, held: Mapping[int, int]) -> set[int]:
        """Renew the leases of these partitions and return those that are lost: lapsed, or somebody else's."""
        ...

    async def release(self, held: Mapping[int, int]) -> None:
        """End the leases of these partitions as far as they still are the caller's."""
        ...

    async def meet(self) -> Sequence[str]:
        """Say that this replica is here for as long as a lease lasts; return the names of all that are."""
        ...

    async def leave(self) -> None:
        """Say that this replica is not here any more."""
        ...


@dataclass(frozen=True, slots=True)
class RunChange:
    """A change to a run, at `version`; cycle -1 says that the flow is gone.

    `state_after(before)` returns the state after it, given the one before (None at the beginning), or None when the
    record has to be read for that.
    """

    run: RunName
    version: int
    state_after: Callable[[ChainState | None], ChainState | None]


class ChangeFeed(Protocol):
    """Changes to runs, as they happen, on whichever replica."""

    async def subscribe(
        self, partition: int, heard: Callable[[Sequence[RunChange]], None], resync: Callable[[], None]
    ) -> Callable[[], None]:
        """Call `heard` with each batch of changes of a partition from now on, and `resync` when some may be missed.

        Returns, once nothing can be missed any more, what ends it.
        """
        ...


class PeerUnavailable(Unavailable):
    """Another service cannot be reached, or does not answer in time; trying again later may work."""

    def __init__(self, peer: str, detail: str) -> None:
        super().__init__("PEER_UNAVAILABLE", f"the {peer} cannot be reached at the moment", metadata={"peer": peer})
        self.detail = detail


class PeerRefused(Exception):
    """Another service finds fault with what it is asked; asking again will not help."""


class StaleSchedule(Exception):
    """The trigger service knows a higher schedule epoch of a flow."""


class EventStream(Protocol):
    """Events of partitions that the receiver owns. Every method raises PeerUnavailable when the stream breaks."""

    async def subscribe(self, epochs: Mapping[int, int]) -> None:
        """Deliver these partitions from now on, from the first event that is not acknowledged."""
        ...

    async def unsubscribe(self, partitions: Collection[int]) -> None:
        """Deliver these partitions no more."""
        ...

    async def receive(self) -> tuple[list[Event], list[int]]:
        """Wait for events; beside them the partitions that a higher epoch has taken over."""
        ...

    async def acknowledge(self, events: Iterable[Event]) -> None:
        """Say that these events, and all before them, are handled for good."""
        ...

    async def close(self) -> None:
        """End."""
        ...


class DueStream(Protocol):
    """Due triggers of partitions that the receiver owns. Every method raises PeerUnavailable when it breaks."""

    async def subscribe(self, epochs: Mapping[int, int]) -> None:
        """Deliver these partitions from now on."""
        ...

    async def unsubscribe(self, partitions: Collection[int]) -> None:
        """Deliver these partitions no more."""
        ...

    async def receive(self) -> tuple[list[DueFlow], list[int]]:
        """Wait for due triggers; beside them the partitions that a higher epoch has taken over."""
        ...

    async def answer(self, answers: Sequence[DueAnswer]) -> None:
        """Answer due triggers."""
        ...

    async def close(self) -> None:
        """End."""
        ...


class NodeTasks(Protocol):
    """The node task manager. Every method raises PeerUnavailable when it cannot be reached."""

    def events(self) -> EventStream:
        """Open the stream of events."""
        ...

    async def submit(self, runs: Sequence[Submission], plans: Sequence[ComponentPlan]) -> list[SubmitAnswer]:
        """Hand runs over, together at most 500 nodes' worth, with the bodies of plans it may not know.

        Raises PeerRefused when it finds fault with one of them.
        """
        ...

    async def stop(self, order: StopOrder) -> None:
        """Stop a run, also one that is not submitted yet; repeating it does nothing."""
        ...

    async def release(self, state: ChainState, skips: Mapping[str, str], inputs_json: str) -> None:
        """Let components of a run that were withheld begin with these inputs, or skip them for the reason given.

        One that is not withheld any more is left alone.
        """
        ...

    async def stop_node(self, state: ChainState, node_id: str, by: str, reason: str) -> NodeTask:
        """Stop a node of a run and return its node task as it is then, as the node task manager says it."""
        ...

    async def notify_stopped(self, flow_id: str, user_id: str, by: str, reason: str) -> None:
        """Tell a user that a flow was stopped."""
        ...

    async def components(self, runs: Sequence[ChainState]) -> list[ComponentSight]:
        """Return where the components of runs stand, unknown ones left out; at most 500 runs."""
        ...

    async def purge(self, flow_id: str, user_id: str) -> bool:
        """Remove everything of a flow in a bounded step; True when nothing is left."""
        ...

    async def node_tasks(
        self, state: ChainState, *, node_ids: Sequence[str] = (), outputs: bool = False, signals: bool = False,
        page_size: int = 1000, page_token: str = "",
    ) -> ListNodeTasksResponse:  # fmt: skip
        """Return a page of a run's node tasks, as the node task manager says it: the scheduler passes them on."""
        ...

    async def outputs(self, node_tasks: Sequence[tuple[str, str]]) -> list[Sequence[tuple[str, str]]]:
        """Return what node tasks (id, user) emitted, JSON text by handle, in order; of the first of them at least one.

        At most 1000; the answer stops early when it would be too large.
        """
        ...

    async def node_logs(self, state: ChainState, after: str, limit: int) -> list[LogLine]:
        """Return up to `limit` lines that nodes wrote in a cycle after the line `after`, oldest first."""
        ...


class Triggers(Protocol):
    """The trigger service. Every method raises PeerUnavailable when it cannot be reached."""

    def due(self) -> DueStream:
        """Open the stream of due triggers."""
        ...

    async def save(self, flow_id: str, *, schedule: ScheduleDefinition, first_ms: int, schedule_epoch: int) -> None:
        """Let a flow be due first at `first_ms`, then whenever its schedule plans it.

        Raises StaleSchedule when a higher epoch is known.
        """
        ...

    async def epoch_of(self, flow_id: str) -> int | None:
        """Return the schedule epoch of a flow's trigger, None when there is none."""
        ...

    async def remove(self, flow_id: str, schedule_epoch: int) -> None:
        """Let a flow be due no more. Raises StaleSchedule when a higher epoch is known."""
        ...


class Caches(Protocol):
    """The caches that results of nodes may come from."""

    async def known(self) -> Collection[str] | None:
        """Return the names of all caches, None when nobody could be asked."""
        ...


class NodeTypes(Protocol):
    """The catalogue of node types that live workers offer."""

    async def catalogue(self, node_types: Collection[str]) -> NodeTypeCatalogue | None:
        """Return the declarations of these types as far as somebody offers them, None when nobody could be asked."""
        ...
