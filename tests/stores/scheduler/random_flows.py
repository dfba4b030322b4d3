"""Random operations on flows, for memory and Redis alike."""

import itertools
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from tests.servers import RedisServer
from tests.stores.machines import TwinStores
from tests.stores.scheduler.bench import MINUTE, Stores, memory_stores, redis_stores, registration, request_of
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.event_schedule import EventSchedule
from tradewind.scheduler.domain.flow_definition import OverlapPolicy
from tradewind.scheduler.domain.flow_record import FlowRecord, StatusChange
from tradewind.scheduler.domain.flow_status import MOVES, FlowStatus
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.schedule_definition import CatchUp, ScheduleDefinition
from tradewind.scheduler.stores.memory import MemoryStores
from tradewind.scheduler.stores.redis import RedisStores
from tradewind.server.schedules.schedule import Span

IDS = ["a", "x", "c.d"]
KEPT_REVISIONS = 2
LEASE_MS = 10**9
SETTLE_MS = 2000

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
picks = st.integers(0, 9)


class RandomFlows(TwinStores[Stores]):
    """Memory and one Redis under one clock, with flows that are added, changed and removed."""

    memory: MemoryStores
    redis: RedisStores

    def __init__(self, server: RedisServer) -> None:
        super().__init__(server)
        self.memory = memory_stores(self.clock, LEASE_MS, KEPT_REVISIONS, lambda: self.listens, SETTLE_MS)
        self.numbers = itertools.count()
        self.seen: dict[RunName, ChainState] = {}
        self.epochs: dict[int, int] = {}
        self.listens = False
        self.revisions = 0
        self.redis = self.run(self.connected())

    async def connected(self) -> RedisStores:
        return redis_stores(self.server, self.clock, LEASE_MS, KEPT_REVISIONS, lambda: self.listens, SETTLE_MS)

    def flow(self, flow_id: str) -> FlowRecord | None:
        (found,) = self.run(self.memory.flows.find([flow_id]))
        return found  # type: ignore[no-any-return]

    def picked(self, pick: int) -> ChainState:
        return list(self.seen.values())[-1 - pick % len(self.seen)]

    def refresh(self) -> None:
        """Remember the newest states, without forgetting those of removed runs."""
        for flow_id in IDS:
            states = self.run(self.memory.cycles.newest(flow_id, None, 50))
            self.seen |= {state.name: state for state in states}
            outlines = self.both(lambda store, flow_id=flow_id: store.cycles.outlines(flow_id, None, 50))  # type: ignore[misc]
            assert outlines == [state.outline for state in states]

    @initialize(overlap=overlaps, chosen=st.lists(schedules, min_size=len(IDS), max_size=len(IDS)))
    def begin_with_running_flows(self, overlap: OverlapPolicy, chosen: list[ScheduleDefinition]) -> None:
        for flow_id, schedule in zip(IDS, chosen, strict=True):
            made = registration(flow_id, schedule=schedule, overlap=overlap, keep_cycles=2)
            self.both(lambda store, made=made: store.flows.register(made))  # type: ignore[misc]
            self.change_status(flow_id, FlowStatus.RUNNING, 0, "")

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
        next_ms = flow.next_execution_ms if flow else 0
        made = registration(
            flow_id,
            digest=digest,
            config_json=f"config {digest}",
            schedule=schedule,
            pause_after_failures=pause_after,
            first_ms=schedule.standby_ms or (0 if schedule.begins_with_the_flow else self.clock.now_ms() + 5),
            passed=Span(next_ms, next_ms + 1000, 2) if next_ms > 0 else None,
            overlap=overlap,
            keep_cycles=keep,
            user_id=user,
            owner_only=owner_only,
            request=request_of(request[0], f"register-{request[1]}", flow_id=flow_id) if request else None,
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
        if flow and flow.next_execution_ms > 0 and not later:
            passed = Span(flow.next_execution_ms, flow.next_execution_ms, 1)
        if flow and flow.schedule.on and status is FlowStatus.RUNNING:
            start_at = flow.schedule.standby_ms
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
