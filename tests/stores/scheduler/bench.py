"""The scheduler's stores under test, their clock, and what tests put into them."""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from msgspec import structs

from tests.servers import RedisServer
from tradewind.scheduler.domain.backfill import Backfill, BackfillDraft, BackfillOutcome, BackfillStep, past_times
from tradewind.scheduler.domain.beginning import BeginAnswer, BeginOutcome, BeginRequest, CycleShape
from tradewind.scheduler.domain.chain_state import (
    REASON,
    STATUS,
    ChainState,
    ComponentEnd,
    CycleOrigin,
    UpdateResult,
    component_field,
)
from tradewind.scheduler.domain.cycle_log import cycle_log
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.failure_policy import FailurePolicy
from tradewind.scheduler.domain.flow_definition import OverlapPolicy
from tradewind.scheduler.domain.flow_record import (
    REMEMBERED_MS,
    FlowRecord,
    FlowRegistration,
    RegisterOutcome,
    RememberedRequest,
    StatusAnswer,
    StatusChange,
)
from tradewind.scheduler.domain.flow_status import MOVES, FlowStatus
from tradewind.scheduler.domain.log_line import LogLevel, LogText
from tradewind.scheduler.domain.revision import KEPT_REVISIONS
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.run_update import RunUpdate
from tradewind.scheduler.domain.schedule_definition import ScheduleDefinition
from tradewind.scheduler.ports.backfills import Backfills
from tradewind.scheduler.ports.bulk_jobs import BulkJobs
from tradewind.scheduler.ports.changes import ChangeFeed
from tradewind.scheduler.ports.cycles import ChainStateRepository, CycleRecords
from tradewind.scheduler.ports.due_sets import OpenRuns, Outbox
from tradewind.scheduler.ports.ends import Ends
from tradewind.scheduler.ports.firings import Firings
from tradewind.scheduler.ports.flows import FlowRecords
from tradewind.scheduler.ports.logs import LogLines
from tradewind.scheduler.ports.memories import FlowMemories
from tradewind.scheduler.ports.owning import Partitions
from tradewind.scheduler.ports.revisions import Revisions
from tradewind.scheduler.ports.waking import WakeChannel
from tradewind.scheduler.stores.keys import ACL, Keys
from tradewind.scheduler.stores.memory import MemoryStores
from tradewind.scheduler.stores.redis import RedisStores
from tradewind.server.clock import ManualClock
from tradewind.server.partitions import partition_of
from tradewind.server.redis.subscriber import Subscriber

SECOND = 1000
MINUTE = 60 * SECOND
CHECK_IN = 5 * SECOND

LASTING_KEYS = (
    "trading_flow:{f*}:flow:*",
    "trading_flow:{f*}:flows",
    "trading_flow:{f*}:open",
    "trading_flow:{f*}:outbox",
    "trading_flow:{f*}:queued",
    "trading_flow:{f*}:backfills",
    "trading_flow:{f*}:ends",
    "trading_flow:{f*}:returns",
    "trading_flow:{f*}:owner",
    "trading_flow:{f*}:job:*",
    "trading_flow:{f*}:jobs",
    "trading_flow:{f*}:jobs_open",
)
"""Keys that may stay for ever: flows until they are deleted, and indexes with one entry per flow or open run."""


class Stores(Protocol):
    """All stores over the same data."""

    @property
    def flows(self) -> FlowRecords: ...
    @property
    def cycles(self) -> CycleRecords: ...
    @property
    def states(self) -> ChainStateRepository: ...
    @property
    def open_runs(self) -> OpenRuns: ...
    @property
    def outbox(self) -> Outbox: ...
    @property
    def firings(self) -> Firings: ...
    @property
    def ends(self) -> Ends: ...
    @property
    def returns(self) -> Ends: ...
    @property
    def backfills(self) -> Backfills: ...
    @property
    def memories(self) -> FlowMemories: ...
    @property
    def logs(self) -> LogLines: ...
    @property
    def partitions(self) -> Partitions: ...
    @property
    def changes(self) -> ChangeFeed: ...
    @property
    def wakes(self) -> WakeChannel: ...
    @property
    def jobs(self) -> BulkJobs: ...
    @property
    def revisions(self) -> Revisions: ...


def memory_stores(
    clock: Callable[[], int],
    lease_ms: int = 10_000,
    kept_revisions: int = KEPT_REVISIONS,
    publishes_ends: Callable[[], bool] = lambda: False,
    settle_ms: int = 0,
) -> MemoryStores:
    return MemoryStores(
        clock, lease_ms=lease_ms, kept_revisions=kept_revisions, publishes_ends=publishes_ends, settle_ms=settle_ms
    )


def redis_stores(
    server: RedisServer,
    clock: Callable[[], int],
    lease_ms: int = 10_000,
    kept_revisions: int = KEPT_REVISIONS,
    publishes_ends: Callable[[], bool] = lambda: False,
    settle_ms: int = 0,
) -> RedisStores:
    """Return stores that are logged in as the service's own user."""
    return RedisStores(
        server.connect(ACL.name, max_connections=64),
        Keys(),
        clock,
        Subscriber(server.url(ACL.name)),
        replica="here",
        lease_ms=lease_ms,
        publishes_ends=publishes_ends,
        kept_revisions=kept_revisions,
        settle_ms=settle_ms,
    )


def shape(flow_id: str = "f", revision: int = 1, nodes: int = 2, **changes: object) -> CycleShape:
    made = CycleShape(
        flow_id=flow_id,
        user_id="default",
        revision=revision,
        node_ids=tuple(f"n{place}" for place in range(nodes)),
        component_count=2,
        failure_policy=FailurePolicy.SKIP_DOWNSTREAM,
        timeout_ms=0,
        keep_cycles=100,
        schedule=ScheduleDefinition(MINUTE),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def registration(flow_id: str = "f", **changes: object) -> FlowRegistration:
    made = FlowRegistration(
        flow_id=flow_id,
        user_id="",
        config_json='{"interval":60}',
        structure_json="{}",
        labels=(("team", "a"),),
        digest="d1",
        schedule=ScheduleDefinition(MINUTE),
        overlap=OverlapPolicy.ALLOW,
        keep_cycles=100,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@dataclass
class Bench:
    """The stores, used by a scheduler that owns nothing unless a test says otherwise."""

    stores: Stores
    clock: ManualClock
    has_listeners: bool = False
    """Whether ends of runs have listeners."""
    _names: Iterator[int] = field(default_factory=itertools.count)

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    async def register(self, flow_id: str = "f", **changes: object) -> tuple[RegisterOutcome, int]:
        return await self.stores.flows.register(registration(flow_id, **changes))

    async def flow(self, flow_id: str = "f") -> FlowRecord:
        (found,) = await self.stores.flows.find([flow_id])
        assert found is not None, flow_id
        return found

    async def change_status(self, status: FlowStatus, flow_id: str = "f", **more: object) -> StatusAnswer:
        allowed = tuple(current for current in FlowStatus if status in MOVES[current])
        change = StatusChange(flow_id, status, allowed, **more)  # type: ignore[arg-type]
        return await self.stores.flows.change_status(change)

    def request(self, flow_id: str = "f", **changes: object) -> BeginRequest:
        shaped = changes.pop("shape", None) or shape(flow_id)
        assert isinstance(shaped, CycleShape)
        made = BeginRequest(shaped, f"run{next(self._names)}", CycleOrigin.RUN_FLOW, CHECK_IN)
        return structs.replace(made, **changes)

    async def scheduled_request(self, due_ms: int, *, now_ms: int = 0, **changes: object) -> BeginRequest:
        """Return a request of the own schedule of flow `f`, judged now or, ahead of its time, at `now_ms`."""
        flow = await self.flow()
        changes.setdefault("schedule_epoch", flow.schedule_epoch)
        changes.setdefault("shape", shape("f", flow.revision, schedule=flow.schedule))
        changes.setdefault("ahead", now_ms > self.now)
        return self.request("f", **schedule_fields(flow.schedule, due_ms, now_ms or self.now), **changes)

    def queued_request(self) -> BeginRequest:
        """Return a request for the planned time that has waited longest."""
        return self.request(origin=CycleOrigin.SCHEDULE, queued=True)

    async def backfill(self, from_ms: int, to_ms: int, max_running: int = 1) -> int:
        """Create a backfill of flow `f` and return its id."""
        outcome, backfill_id = await self.stores.backfills.create(backfill_draft(from_ms, to_ms, max_running))
        assert outcome is BackfillOutcome.CREATED, outcome
        return backfill_id

    async def find_backfill(self, backfill_id: int) -> Backfill:
        """Return a backfill of flow `f` as it stands."""
        (found,) = await self.stores.backfills.find("f", [backfill_id])
        assert found is not None, backfill_id
        return found

    def backfill_request(self, step: BackfillStep, flow_id: str = "f", **changes: object) -> BeginRequest:
        """Return a request for the planned time of a backfill's step."""
        return self.request(flow_id, origin=CycleOrigin.BACKFILL, planned_ms=step.position_ms, backfill=step, **changes)

    async def backfill_firings(self, backfill_id: int, flow_id: str = "f") -> list[tuple[int, str, int, int, str]]:
        """Return the firings of a backfill's planned times, in the form of `firings`."""
        lines = reversed(await self.stores.firings.newest(flow_id, 0, 20_000, backfill_id))
        return [(line.planned_ms, line.outcome.value, line.cycle, line.count, line.reason) for line in lines]

    async def firings(self, flow_id: str = "f") -> list[tuple[int, str, int, int, str]]:
        """Return the firings of planned times, the earliest first: time, outcome, cycle, count, reason."""
        lines = reversed(await self.stores.firings.newest(flow_id, 0, 2000))
        return [(line.planned_ms, line.outcome.value, line.cycle, line.count, line.reason) for line in lines]

    async def begin(self, request: BeginRequest | None = None, epoch: int = 0) -> BeginAnswer:
        request = request or self.request()
        (answer,) = await self.stores.cycles.begin([request], epochs(request.shape.flow_id, epoch))
        return answer

    async def begun(self, request: BeginRequest | None = None) -> ChainState:
        """Begin a cycle and return its state on record."""
        answer = await self.begin(request)
        assert answer.outcome is BeginOutcome.BEGUN, answer
        assert answer.run is not None
        return await self.state(answer.run)

    async def state(self, run: RunName) -> ChainState:
        found = await self.stores.states.load(run)
        assert found is not None, run
        return found

    async def end(
        self, state: ChainState, status: CycleStatus = CycleStatus.COMPLETED, log: str = "", epoch: int = 0
    ) -> UpdateResult:
        text = LogText(LogLevel.INFO, log) if log else None
        update = RunUpdate(structs.replace(state, status=status), {STATUS}, log=text)
        (result,) = await self.stores.states.update_many([update], epochs(state.name.flow_id, epoch))
        return result

    async def write(self, state: ChainState, fields: Collection[str]) -> UpdateResult:
        """Write these fields of one run."""
        (result,) = await self.stores.states.update_many([RunUpdate(state, fields)])
        return result

    async def write_reason(self, state: ChainState, reason: str) -> UpdateResult:
        return await self.write(structs.replace(state, reason=reason), {REASON})

    async def fold(self, state: ChainState, ends: Mapping[str, ComponentEnd]) -> UpdateResult:
        fields = [component_field(component_id) for component_id in ends]
        return await self.write(with_ends(state, ends), fields)

    async def log_lines(self, cycle: int) -> list[str]:
        runs = [state for state in await self.stores.cycles.newest("f", None, 200) if state.name.cycle == cycle]
        return [line.text for line in cycle_log(runs[::-1], await self.stores.logs.read("f", cycle))]

    async def remove(self, flow_id: str = "f", cycles: int = 100) -> int:
        """Delete a flow in steps and return the number of steps."""
        await self.change_status(FlowStatus.DELETING, flow_id)
        steps = 1
        while not await self.stores.flows.remove_step(flow_id, cycles):
            steps += 1
        return steps


def backfill_draft(from_ms: int, to_ms: int, max_running: int = 1, flow_id: str = "f") -> BackfillDraft:
    """Return a backfill of every minute of a range."""
    times = past_times(ScheduleDefinition(MINUTE), 0, from_ms, to_ms)
    assert times is not None
    return BackfillDraft(
        flow_id,
        from_ms,
        to_ms,
        times.first_ms,
        times.last_ms,
        times.count,
        max_running,
        times.schedule,
        times.anchor_ms,
        "ada",
    )


def schedule_fields(schedule: ScheduleDefinition, due_ms: int, now_ms: int) -> dict[str, Any]:
    """Return the fields of a request that a schedule decides."""
    verdict = schedule.judge(due_ms, now_ms)
    return {
        "origin": CycleOrigin.SCHEDULE,
        "planned_ms": verdict.fire_ms or 0,
        "due_ms": due_ms,
        "next_ms": verdict.next_ms or 0,
        "missed": verdict.missed,
    }


def epochs(flow_id: str, epoch: int) -> dict[int, int]:
    """Return the epochs of an owner of the flow's partition; none when `epoch` is 0."""
    return {partition_of(flow_id): epoch} if epoch else {}


def request_of(
    name: str, payload: str = "p", user_id: str = "default", lifetime_ms: int = REMEMBERED_MS, flow_id: str = "f"
) -> RememberedRequest:
    return RememberedRequest(user_id, flow_id, name, payload, lifetime_ms)


def with_ends(state: ChainState, ends: Mapping[str, ComponentEnd]) -> ChainState:
    """Return a state in which more components have ended; ended components stay as they are."""
    return structs.replace(state, components={**ends, **state.components})


def names(states: Sequence[ChainState]) -> list[int]:
    return [state.name.cycle for state in states]


def settling(server: RedisServer | None, clock: ManualClock) -> Bench:
    """Return a bench that keeps cycles for a minute after their end, over Redis if there is a server."""
    stores = redis_stores(server, clock, settle_ms=MINUTE) if server else memory_stores(clock, settle_ms=MINUTE)
    return Bench(stores, clock)
