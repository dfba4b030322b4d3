"""The same random operations drive memory and Redis, which must answer alike all the time."""

import itertools
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from tests.servers import RedisServer
from tests.stores.machines import TwinStores
from tests.stores.scheduler.bench import (
    CHECK_IN,
    MINUTE,
    Stores,
    backfill_draft,
    judged,
    memory_stores,
    redis_stores,
    registration,
    request_of,
    shape,
)
from tradewind.scheduler.domain.backfill import BackfillStep
from tradewind.scheduler.domain.beginning import BeginRequest, EventFiring, RerunRequest
from tradewind.scheduler.domain.chain_state import (
    ERROR,
    MEMORY,
    REASON,
    RESULT,
    STATUS,
    STOP,
    SUBMITTED,
    ChainState,
    ComponentEnd,
    CycleOrigin,
    Notes,
    StopRequest,
    component_field,
)
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.event_schedule import EventSchedule
from tradewind.scheduler.domain.firing import FiringOutcome
from tradewind.scheduler.domain.flow_definition import OverlapPolicy
from tradewind.scheduler.domain.flow_record import FlowRecord, StatusChange
from tradewind.scheduler.domain.flow_status import MOVES, FlowStatus
from tradewind.scheduler.domain.log_line import LogLevel, LogText
from tradewind.scheduler.domain.memory import Memory, MemoryChange
from tradewind.scheduler.domain.parent import Parent
from tradewind.scheduler.domain.rerun import Rerun
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.run_update import RunUpdate
from tradewind.scheduler.domain.schedule_definition import CatchUp, ScheduleDefinition
from tradewind.scheduler.stores.redis import RedisStores
from tradewind.server.partitions import PARTITIONS, partition_of
from tradewind.server.schedules.schedule import Span

IDS = ["a", "b", "c.d"]
EVERYWHERE = range(PARTITIONS)
KEPT_REVISIONS = 2
LEASE_MS = 10**9

ids = st.sampled_from(IDS)
schedules = st.sampled_from(
    [
        ScheduleDefinition(),
        ScheduleDefinition(700),
        ScheduleDefinition(700, catch_up=CatchUp.ALL, window_ms=3000),
        ScheduleDefinition(MINUTE, max_cycles=2),
        ScheduleDefinition(times_ms=(1_700_000_010_000, 1_700_000_060_000), catch_up=CatchUp.NONE),
        ScheduleDefinition(on=EventSchedule("price")),
        ScheduleDefinition(on=EventSchedule("price"), end_ms=1_700_000_060_000, max_cycles=2),
    ]
)
overlaps = st.sampled_from(list(OverlapPolicy))
keeps = st.sampled_from([1, 3])
users = st.sampled_from(["", "u"])
digests = st.sampled_from(["d1", "d2", "d3"])
requests = st.sampled_from([None, None, None, ("r1", "p"), ("r2", "p"), ("r1", "q")])
statuses = st.sampled_from(
    [FlowStatus.RUNNING, FlowStatus.RUNNING, FlowStatus.PAUSED, FlowStatus.STOPPED, FlowStatus.DELETING]
)
offsets = st.sampled_from([-1, 0, 0, 0, 0, 1])
endings = st.sampled_from([status for status in CycleStatus if status is not CycleStatus.RUNNING])
ends = st.builds(ComponentEnd, *(st.integers(0, 3) for _ in range(5)))
components = st.dictionaries(st.sampled_from(["0", "1"]), ends, min_size=1)
seldom = st.sampled_from([0, 0, 0, 1])
picks = st.integers(0, 9)
texts = st.sampled_from(["1", '"ü"', '{"a":[1,2]}', '"' + 3000 * "x" + '"'])
memory_changes = st.builds(
    MemoryChange,
    st.dictionaries(st.sampled_from(["a", "b", "ü"]), texts, max_size=2),
    st.sampled_from([(), ("a",), ("a", "none")]),
    st.none(),
    st.sampled_from(["", "c1", "c2"]),
)
notes = st.builds(
    Notes,
    st.sampled_from(["", "E"]),
    st.builds(lambda change: Memory().after(change), memory_changes),
    texts,
)


class Twins(TwinStores[Stores]):
    """Memory and one Redis under one clock."""

    redis: RedisStores

    def __init__(self, server: RedisServer) -> None:
        super().__init__(server)
        self.memory = memory_stores(self.clock, LEASE_MS, KEPT_REVISIONS, lambda: self.listens)
        self.numbers = itertools.count()
        self.seen: dict[RunName, ChainState] = {}
        self.epochs: dict[int, int] = {}
        self.listens = False
        self.redis = self.run(self.connected())

    async def connected(self) -> RedisStores:
        return redis_stores(self.server, self.clock, LEASE_MS, KEPT_REVISIONS, lambda: self.listens)

    def flow(self, flow_id: str) -> FlowRecord | None:
        (found,) = self.run(self.memory.flows.find([flow_id]))
        return found  # type: ignore[no-any-return]

    def picked(self, pick: int) -> ChainState:
        return list(self.seen.values())[-1 - pick % len(self.seen)]

    def refresh(self) -> None:
        """Remember the newest states, without forgetting those of runs that are gone."""
        for flow_id in IDS:
            for state in self.run(self.memory.cycles.newest(flow_id, None, 50)):
                self.seen[state.name] = state

    @initialize(overlap=overlaps)
    def begin_with_flows(self, overlap: OverlapPolicy) -> None:
        for flow_id in IDS:
            made = registration(flow_id, overlap=overlap)
            self.both(lambda store, made=made: store.flows.register(made))  # type: ignore[misc]

    @rule(
        flow_id=ids,
        digest=digests,
        schedule=schedules,
        pause_after=st.sampled_from([0, 1, 2]),
        overlap=overlaps,
        keep=keeps,
        user=users,
        request=requests,
        etag=st.sampled_from(["", "", "its own", "of another"]),
        owner_only=st.sampled_from([False, False, True]),
    )
    def register(
        self,
        flow_id: str,
        digest: str,
        schedule: ScheduleDefinition,
        pause_after: int,
        overlap: OverlapPolicy,
        keep: int,
        user: str,
        request: tuple[str, str] | None,
        etag: str,
        owner_only: bool,
    ) -> None:
        flow = self.flow(flow_id)
        made = registration(
            flow_id,
            digest=digest,
            config_json=f"config {digest}",
            schedule=schedule,
            pause_after_failures=pause_after,
            first_ms=schedule.stands_by_ms or (0 if schedule.begins_with_the_flow else self.clock.now_ms() + 5),
            overlap=overlap,
            keep_cycles=keep,
            user_id=user,
            owner_only=owner_only,
            request=request_of(request[0], f"register-{request[1]}") if request else None,
            etag=flow.etag if flow and etag == "its own" else etag and "0-0",
            by=user or "me",
            note=f"because of {digest}",
        )
        self.both(lambda store: store.flows.register(made))

    @rule(flow_id=ids, status=statuses, later=st.sampled_from([0, 5000]), reason=st.sampled_from(["", "a ü b"]))
    def change_status(self, flow_id: str, status: FlowStatus, later: int, reason: str) -> None:
        allowed = tuple(current for current in FlowStatus if status in MOVES[current])
        start_at = self.clock.now_ms() + later if later else 0
        passed = Span(start_at - 2000, start_at - 1000, 2) if later else None
        flow = self.flow(flow_id)
        if flow and flow.schedule.on and status is FlowStatus.RUNNING:
            start_at = flow.schedule.stands_by_ms
        change = StatusChange(flow_id, status, allowed, start_at, "me", reason, passed)
        self.both(lambda store: self.sorted_answer(store, change))
        self.refresh()

    @staticmethod
    async def sorted_answer(store: Stores, change: StatusChange) -> Any:
        answer = await store.flows.change_status(change)
        return replace(answer, stopping=tuple(sorted(answer.stopping)))

    @rule(flow_id=ids, steps=st.integers(1, 3))
    def remove(self, flow_id: str, steps: int) -> None:
        for _ in range(steps):
            self.both(lambda store: store.flows.remove_step(flow_id, 2))

    @rule(flow_id=ids)
    def raise_schedule_epoch(self, flow_id: str) -> None:
        self.both(lambda store: store.flows.raise_schedule_epoch(flow_id))

    @rule(flow_id=ids, offset=offsets)
    def settle(self, flow_id: str, offset: int) -> None:
        flow = self.flow(flow_id)
        epoch = flow.schedule_epoch + offset if flow else 0
        self.both(lambda store: store.outbox.settle(flow_id, epoch))

    @rule(flow_id=ids, delay=st.sampled_from([0, 500]))
    def postpone_outbox(self, flow_id: str, delay: int) -> None:
        self.both(lambda store: store.outbox.postpone(flow_id, delay))

    def wish(self, flow_id: str, **changes: Any) -> BeginRequest:
        flow = self.flow(flow_id)
        revision = flow.revision if flow else 1
        keep = flow.keep_cycles if flow else 1
        schedule = flow.schedule if flow else ScheduleDefinition()
        made = shape(flow_id, revision, keep_cycles=keep, schedule=schedule, timeout_ms=0 if schedule.once else 9000)
        made = replace(made, digest=flow.digest if flow else "d1")
        wish = BeginRequest(made, f"run{next(self.numbers)}", CycleOrigin.RUN_FLOW, CHECK_IN)
        return replace(wish, **changes)

    def begin(self, *wishes: BeginRequest) -> None:
        epochs = self.epochs
        self.both(lambda store: store.cycles.begin(wishes, epochs))
        self.refresh()

    @rule(flow_ids=st.lists(ids, min_size=1, max_size=3), request=requests, inputs=st.sampled_from(["", '{"a":"ü"}']))
    def begin_now(self, flow_ids: list[str], request: tuple[str, str] | None, inputs: str) -> None:
        remembered = request_of(*request) if request else None
        self.begin(*(self.wish(flow_id, request=remembered, inputs_json=inputs) for flow_id in flow_ids))

    @rule(flow_id=ids, attempt=st.integers(1, 3))
    def begin_for_a_node(self, flow_id: str, attempt: int) -> None:
        parent = Parent(RunName("above", 3, 1), "r", "ü:7", attempt, 2)
        request = request_of(parent.request_id, flow_id)
        self.begin(self.wish(flow_id, origin=CycleOrigin.SUB_FLOW, parent=parent, request=request))

    @rule(
        flow_id=ids,
        tick=st.sampled_from([-1, 0, 0, 0, 0, 1]),
        older=st.sampled_from([0, 0, 0, 1]),
        stale=st.sampled_from([0, 0, 0, 1]),
        digest=st.sampled_from([None, None, None, "", "d", "d2"]),
    )
    def begin_on_schedule(self, flow_id: str, tick: int, older: int, stale: int, digest: str | None) -> None:
        flow = self.flow(flow_id)
        if flow is None or flow.schedule.on:
            return
        due = (flow.next_execution_ms or self.clock.now_ms()) + tick * max(flow.schedule.interval_ms, 1)
        wish = self.wish(
            flow_id,
            schedule_epoch=flow.schedule_epoch - older,
            ahead=due > self.clock.now_ms(),
            **judged(flow.schedule, due, max(due, self.clock.now_ms())),
        )
        if digest is not None:
            wish = replace(wish, shape=replace(wish.shape, digest=digest))
        self.begin(replace(wish, shape=replace(wish.shape, revision=wish.shape.revision - stale)))

    @rule(
        flow_ids=st.lists(ids, min_size=1, max_size=3),
        came=st.integers(-2, 2),
        older=st.sampled_from([0, 0, 0, 1, 100_000]),
        stale=seldom,
        refused=st.sampled_from([None, None, (FiringOutcome.MISSED, "late ü")]),
        event_id=st.sampled_from(["e", "a b/ü@1", "x" * 128]),
        over=seldom,
    )
    def begin_on_events(
        self,
        flow_ids: list[str],
        came: int,
        older: int,
        stale: int,
        refused: tuple[FiringOutcome, str] | None,
        event_id: str,
        over: int,
    ) -> None:
        due = self.clock.now_ms() + came
        wishes = []
        for flow_id in flow_ids:
            flow = self.flow(flow_id)
            wish = self.wish(
                flow_id,
                origin=CycleOrigin.SCHEDULE,
                planned_ms=due,
                due_ms=due,
                next_ms=0 if over or flow is None else flow.schedule.stands_by_ms,
                schedule_epoch=flow.schedule_epoch - older if flow else 0,
                inputs_json='{"n": 1,\n"event": {"id": "ü"}}',
                event=EventFiring(event_id, *refused) if refused else EventFiring(event_id),
            )
            wishes.append(replace(wish, shape=replace(wish.shape, revision=wish.shape.revision - stale)))
        self.begin(*wishes, self.wish(flow_ids[0]))

    @rule(flow_ids=st.lists(ids, min_size=1, max_size=3))
    def begin_queued(self, flow_ids: list[str]) -> None:
        self.begin(*(self.wish(flow_id, origin=CycleOrigin.SCHEDULE, queued=True) for flow_id in flow_ids))

    @rule(flow_id=ids, minutes=st.integers(1, 4), most=st.integers(1, 3), request=requests)
    def backfill(self, flow_id: str, minutes: int, most: int, request: tuple[str, str] | None) -> None:
        end = self.clock.now_ms() // MINUTE * MINUTE
        draft = backfill_draft(end - minutes * MINUTE, end, most, flow_id)
        draft = replace(draft, request=request_of(f"fill-{request[0]}", request[1]) if request else None)
        self.both(lambda store: store.backfills.create(draft))

    @rule(flow_id=ids, pick=st.integers(0, 1), late=seldom)
    def begin_backfill(self, flow_id: str, pick: int, late: int) -> None:
        backfill_ids = self.both(lambda store: store.backfills.ids(flow_id))
        wanted = backfill_ids[pick : pick + 1]
        for backfill in self.both(lambda store: store.backfills.find(flow_id, wanted)):
            for step in backfill.steps() if backfill else ():
                step = replace(step, position_ms=step.position_ms - late * MINUTE)
                self.begin(self.wish(flow_id, origin=CycleOrigin.BACKFILL, planned_ms=step.position_ms, backfill=step))

    @rule(flow_id=ids, backfill_id=st.integers(1, 3), really=st.sampled_from([False, False, True]))
    def cancel_backfill(self, flow_id: str, backfill_id: int, really: bool) -> None:
        if really:
            self.both(lambda store: store.backfills.cancel(flow_id, backfill_id, "cancelled by ü"))

    @precondition(lambda self: self.seen)
    @rule(pick=st.integers(0, 1), least=st.sampled_from([0, 9]), scheduled=st.booleans())
    def begin_again(self, pick: int, least: int, scheduled: bool) -> None:
        state = self.picked(pick)
        if state.status is not CycleStatus.RUNNING or state.name.run:
            return
        changes: dict[str, Any] = {"run_id": state.facts.run_id, "replaces": state.name.cycle, "at_least": least}
        if scheduled and state.facts.origin is CycleOrigin.SCHEDULE:
            changes |= {"origin": CycleOrigin.SCHEDULE, "planned_ms": state.facts.planned_ms}
        if state.facts.parent is not None:
            changes |= {"origin": CycleOrigin.SUB_FLOW, "parent": state.facts.parent}
        if state.facts.backfill_id:
            changes |= {
                "origin": CycleOrigin.BACKFILL,
                "planned_ms": state.facts.planned_ms,
                "backfill": BackfillStep(state.facts.backfill_id),
            }
        self.begin(self.wish(state.name.flow_id, **changes))

    @precondition(lambda self: self.seen)
    @rule(
        pick=picks,
        request=requests,
        kept=st.sampled_from([(), (0, 1, 2, 5)]),
        stale=seldom,
        inputs=st.sampled_from(["", "{}"]),
    )
    def begin_rerun(
        self, pick: int, request: tuple[str, str] | None, kept: tuple[int, ...], stale: int, inputs: str
    ) -> None:
        source = self.picked(pick)
        source_id = "other" if stale else source.facts.run_id
        rerun = Rerun(source.name.run, source_id, (("0", kept),) if kept else (), ("a",), "me", 'why "ü"')
        remembered = request_of(*request) if request else None
        wish = RerunRequest(source, f"run{next(self.numbers)}", rerun, CHECK_IN, 9000, inputs, "", remembered)
        self.both(lambda store: store.cycles.begin_rerun(wish))
        if remembered is not None:
            self.both(lambda store: store.cycles.first_answer(source.name.flow_id, remembered))
        self.refresh()

    def write(self, *updates: RunUpdate) -> None:
        epochs = self.epochs
        self.both(lambda store: store.states.update_many(updates, epochs))
        self.refresh()

    @precondition(lambda self: self.seen)
    @rule(pick=picks, offset=offsets, ended=components, check_in=st.sampled_from([-1, 0, 700]), log=st.booleans())
    def fold(self, pick: int, offset: int, ended: dict[str, ComponentEnd], check_in: int, log: bool) -> None:
        state = self.picked(pick)
        new = state.with_components(ended)
        fields = [component_field(component_id) for component_id in ended]
        text = LogText(LogLevel.WARNING, "line  with ü") if log else None
        self.write(RunUpdate(replace(new, version=state.version + offset), fields, check_in, text))

    @precondition(lambda self: self.seen)
    @rule(pick=picks, offset=offsets, status=endings, reason=st.sampled_from(["", "because"]))
    def end(self, pick: int, offset: int, status: CycleStatus, reason: str) -> None:
        state = self.picked(pick)
        final = replace(state, version=state.version + offset, status=status, reason=reason)
        self.write(RunUpdate(final, (STATUS, REASON), log=LogText(LogLevel.INFO, f"ended {status}")))

    @precondition(lambda self: self.seen)
    @rule(first=picks, second=picks, timeout=st.booleans(), request=st.sampled_from(["", "q1"]))
    def write_several(self, first: int, second: int, timeout: bool, request: str) -> None:
        stop = StopRequest("system", "too long", self.clock.now_ms(), timeout, request_id=request)
        self.write(
            RunUpdate(replace(self.picked(first), stop=stop), (STOP,), 0),
            RunUpdate(replace(self.picked(second), submitted_ms=self.clock.now_ms()), (SUBMITTED,), 30_000),
        )

    @precondition(lambda self: self.seen)
    @rule(pick=picks, offset=offsets, noted=notes, fields=st.sets(st.sampled_from([ERROR, MEMORY, RESULT])))
    def note(self, pick: int, offset: int, noted: Notes, fields: set[str]) -> None:
        state = self.picked(pick)
        self.write(RunUpdate(replace(state, version=state.version + offset, notes=noted), fields))

    @rule(flow_id=ids, offset=offsets, change=memory_changes)
    def keep_memory(self, flow_id: str, offset: int, change: MemoryChange) -> None:
        memory = self.both(lambda store: store.memories.load(flow_id)) or Memory()
        changed = replace(memory.after(change), version=memory.version + 1 + offset)
        self.both(lambda store: store.memories.try_save(flow_id, changed))

    @precondition(lambda self: self.seen)
    @rule(pick=picks, delay=st.sampled_from([0, 100]))
    def postpone(self, pick: int, delay: int) -> None:
        run = self.picked(pick).name
        self.both(lambda store: store.open_runs.postpone({run: delay}))

    @rule(listens=st.booleans(), tell=st.booleans())
    def listen(self, listens: bool, tell: bool) -> None:
        self.listens = listens
        if tell:
            ends = self.both(lambda store: store.ends.waiting(EVERYWHERE, 2))
            self.both(lambda store: store.ends.told(ends))
            returns = self.both(lambda store: store.returns.waiting(EVERYWHERE, 2))
            self.both(lambda store: store.returns.told(returns))

    @rule(flow_id=ids, older=st.sampled_from([0, 0, 1]))
    def tidy(self, flow_id: str, older: int) -> None:
        partition = partition_of(flow_id)
        epoch = max(0, self.epochs.get(partition, 0) - older)
        self.both(lambda store: store.cycles.tidy(partition, "", epoch))

    @rule(flow_id=ids)
    def examine(self, flow_id: str) -> None:
        """A doctor finds nothing, whatever happened."""
        at = ""
        while True:
            look = self.run(self.redis.doctor.examine(partition_of(flow_id), 0, at, 100, None, False))
            # `settle` says of a deletion that it is told everywhere, which in production comes last.
            assert {finding.check for finding in look.examined.findings} <= {"deletion-forgotten"}
            at = look.examined.at
            if not at:
                return

    @rule(flow_id=ids, overtaken=st.booleans())
    def own(self, flow_id: str, overtaken: bool) -> None:
        partition = partition_of(flow_id)
        epoch = self.both(lambda store: store.partitions.take(partition))
        if not overtaken:
            self.epochs[partition] = epoch

    @rule(ms=st.sampled_from([1, 100, 699, 700, CHECK_IN, MINUTE - 1, MINUTE]))
    def advance(self, ms: int) -> None:
        self.clock.advance(ms)

    @invariant()
    def they_hold_the_same(self) -> None:
        self.both(everything)


async def everything(store: Stores) -> list[Any]:
    """All that can be read."""
    view: list[Any] = [
        await store.flows.find(IDS),
        await store.flows.list_ids("", 10),
        await store.open_runs.check(EVERYWHERE, 50),
        await store.outbox.check(EVERYWHERE, 50),
        sorted(await store.firings.waiting(EVERYWHERE, 50)),
        await store.backfills.active(EVERYWHERE, 50),
        await store.ends.waiting(EVERYWHERE, 50),
        await store.returns.waiting(EVERYWHERE, 50),
    ]
    for flow_id in IDS:
        view.append(await store.memories.load(flow_id))
        backfill_ids = await store.backfills.ids(flow_id)
        view += [backfill_ids, await store.backfills.find(flow_id, backfill_ids)]
        for backfill_id in backfill_ids:
            view.append(await store.firings.newest(flow_id, 0, 50, backfill_id))
        states = await store.cycles.newest(flow_id, None, 50)
        view.append(await store.revisions.newest(flow_id, 0, 50))
        view.append([await store.flows.definition(flow_id, revision) for revision in range(1, 12)])
        view += [states, await store.open_runs.of_flow(flow_id, 50), await store.firings.newest(flow_id, 0, 50)]
        for state in states:
            lines = await store.logs.read(flow_id, state.name.cycle)
            view.append([(line.level, line.source, line.text, line.at_ms) for line in lines])
    return view


def test_memory_and_redis_answer_alike(running_redis: RedisServer) -> None:
    run_machine(
        lambda: Twins(running_redis),  # type: ignore[arg-type]
        settings=settings(
            max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
