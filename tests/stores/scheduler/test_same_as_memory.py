"""The same random operations run on memory and Redis, which must always answer alike."""

from collections.abc import Awaitable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from msgspec import structs

from tests.servers import RedisServer
from tests.stores.machines import run_histories, together
from tests.stores.scheduler.bench import CHECK_IN, MINUTE, Stores, with_ends
from tests.stores.scheduler.random_beginnings import RandomBeginnings
from tests.stores.scheduler.random_flows import IDS, SETTLE_MS, ids, offsets, picks
from tradewind.scheduler.domain.backfill import BackfillStatus
from tradewind.scheduler.domain.chain_state import (
    ERROR,
    MEMORY,
    REASON,
    RESULT,
    STATUS,
    STOP,
    SUBMITTED,
    ComponentEnd,
    Notes,
    StopRequest,
    component_field,
)
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.flow_definition import OverlapPolicy
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.log_line import LogLevel, LogText
from tradewind.scheduler.domain.memory import Memory, MemoryChange
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.run_update import RunUpdate
from tradewind.server.partitions import PARTITIONS, partition_of

EVERYWHERE = range(PARTITIONS)

endings = st.sampled_from([status for status in CycleStatus if status is not CycleStatus.RUNNING])
ends = st.builds(ComponentEnd, *(st.integers(0, 3) for _ in range(5)))
components = st.dictionaries(st.sampled_from(["0", "1"]), ends, min_size=1)
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
    st.builds(lambda change: Memory().with_change(change), memory_changes),
    texts,
)


class Twins(RandomBeginnings):
    """Cycles, and everything that is kept besides them."""

    def write(self, *updates: RunUpdate) -> None:
        epochs = self.epochs
        self.both(lambda store: store.states.update_many(updates, epochs))
        self.refresh()

    @precondition(lambda self: self.seen)
    @rule(pick=picks, offset=offsets, ended=components, check_in=st.sampled_from([-1, 0, 700]), log=st.booleans())
    def fold(self, pick: int, offset: int, ended: dict[str, ComponentEnd], check_in: int, log: bool) -> None:
        state = self.picked(pick)
        new = with_ends(state, ended)
        fields = [component_field(component_id) for component_id in ended]
        text = LogText(LogLevel.WARNING, "line  with ü") if log else None
        self.write(RunUpdate(structs.replace(new, version=state.version + offset), fields, check_in, text))

    @precondition(lambda self: self.seen)
    @rule(pick=picks, offset=offsets, status=endings, reason=st.sampled_from(["", "because"]))
    def end(self, pick: int, offset: int, status: CycleStatus, reason: str) -> None:
        state = self.picked(pick)
        final = structs.replace(state, version=state.version + offset, status=status, reason=reason)
        self.write(RunUpdate(final, (STATUS, REASON), log=LogText(LogLevel.INFO, f"ended {status}")))

    @precondition(lambda self: self.seen)
    @rule(together=st.lists(st.tuples(st.integers(0, 30), endings | st.none(), st.booleans()), min_size=2, max_size=12))
    def write_together(self, together: list[tuple[int, CycleStatus | None, bool]]) -> None:
        """End open runs, or write lines about them, in one call, of one flow or of several in any order."""
        self.refresh()
        running = [state for state in self.seen.values() if state.status is CycleStatus.RUNNING] or [self.picked(0)]
        updates = []
        for pick, status, log in together:
            state = running[pick % len(running)]
            text = LogText(LogLevel.INFO, "line") if log else None
            fields, written = [REASON], structs.replace(state, reason="together")
            if status is not None:
                fields, written = [STATUS], structs.replace(state, status=status)
            updates.append(RunUpdate(written, fields, log=text))
        self.write(*updates)

    @rule(
        flow_id=ids,
        times=st.integers(1, 3),
        late=st.sampled_from([0, 0, 0, 5000]),
        status=st.sampled_from([None, None, CycleStatus.COMPLETED, CycleStatus.FAILED]),
    )
    def run_on_schedule(self, flow_id: str, times: int, late: int, status: CycleStatus | None) -> None:
        """Let the next planned times of a running flow come, and its cycles end, if `status` says how."""
        for _ in range(times):
            flow = self.flow(flow_id)
            if flow is None or flow.next_execution_ms <= 0:
                return
            self.clock.advance(max(0, flow.next_execution_ms + late - self.clock.now_ms()))
            self.begin_on_schedule(flow_id, 0, 0, 0, None)
            self.begin_queued([flow_id])
            if status is not None:
                self.end_all(flow_id, status)

    @rule(flow_id=ids, minutes=st.integers(1, 4), most=st.integers(1, 3), status=endings)
    def run_backfill(self, flow_id: str, minutes: int, most: int, status: CycleStatus) -> None:
        """Backfill a time, and let the first cycles of it begin and end."""
        self.backfill(flow_id, minutes, most, None)
        for _ in range(2):
            self.begin_backfill(flow_id, 0, 0)
            self.end_all(flow_id, status)

    @rule(flow_id=ids, status=endings)
    def end_and_trim(self, flow_id: str, status: CycleStatus) -> None:
        """End all cycles of a flow, and remove those that it keeps no longer."""
        self.end_all(flow_id, status)
        self.advance(SETTLE_MS)
        self.tidy(flow_id, 0)

    def end_all(self, flow_id: str, status: CycleStatus) -> None:
        """End all cycles of a flow that run."""
        for state in self.run(self.memory.cycles.newest(flow_id, None, 50)):
            if state.status is CycleStatus.RUNNING:
                self.write(RunUpdate(structs.replace(state, status=status), (STATUS,)))

    @precondition(lambda self: self.seen)
    @rule(first=picks, second=picks, timeout=st.booleans(), request=st.sampled_from(["", "q1"]))
    def write_several(self, first: int, second: int, timeout: bool, request: str) -> None:
        stop = StopRequest("system", "too long", self.clock.now_ms(), timeout, request_id=request)
        self.write(
            RunUpdate(structs.replace(self.picked(first), stop=stop), (STOP,), 0),
            RunUpdate(structs.replace(self.picked(second), submitted_ms=self.clock.now_ms()), (SUBMITTED,), 30_000),
        )

    @precondition(lambda self: self.seen)
    @rule(pick=picks, offset=offsets, noted=notes, fields=st.sets(st.sampled_from([ERROR, MEMORY, RESULT])))
    def note(self, pick: int, offset: int, noted: Notes, fields: set[str]) -> None:
        state = self.picked(pick)
        self.write(RunUpdate(structs.replace(state, version=state.version + offset, notes=noted), fields))

    @rule(flow_id=ids, offset=offsets, change=memory_changes)
    def save_memory(self, flow_id: str, offset: int, change: MemoryChange) -> None:
        memory = self.both(lambda store: store.memories.load(flow_id)) or Memory()
        changed = replace(memory.with_change(change), version=memory.version + 1 + offset)
        self.both(lambda store: store.memories.try_save(flow_id, changed))

    @precondition(lambda self: self.seen)
    @rule(pick=picks, delay=st.sampled_from([0, 100]))
    def postpone(self, pick: int, delay: int) -> None:
        run = self.picked(pick).name
        self.both(lambda store: store.open_runs.postpone({run: delay}))

    @rule(listens=st.booleans(), deliver=st.booleans())
    def listen(self, listens: bool, deliver: bool) -> None:
        self.listens = listens
        if deliver:
            ends = self.both(lambda store: store.ends.waiting(EVERYWHERE, 2))
            self.both(lambda store: store.ends.remove(ends))
            returns = self.both(lambda store: store.returns.waiting(EVERYWHERE, 2))
            self.both(lambda store: store.returns.remove(returns))

    @rule(flow_id=ids, older=st.sampled_from([0, 0, 1]))
    def tidy(self, flow_id: str, older: int) -> None:
        partition = partition_of(flow_id)
        epoch = max(0, self.epochs.get(partition, 0) - older)
        self.both(lambda store: store.cycles.tidy(partition, "", epoch))

    @rule(flow_id=ids)
    def examine(self, flow_id: str) -> None:
        """Check that a doctor finds nothing, whatever has happened."""
        at = ""
        while True:
            examination = self.run(self.redis.doctor.examine(partition_of(flow_id), 0, at, 100, None, False))
            # `settle` already reports the deletion as told everywhere; in production that comes last.
            assert {finding.check for finding in examination.examined.findings} <= {"deletion-forgotten"}
            at = examination.examined.at
            if not at:
                return

    @rule(flow_id=ids, overtaken=st.booleans())
    def own(self, flow_id: str, overtaken: bool) -> None:
        partition = partition_of(flow_id)
        epoch = self.both(lambda store: store.partitions.acquire(partition))
        if not overtaken:
            self.epochs[partition] = epoch

    @rule(ms=st.sampled_from([1, 100, 699, 700, CHECK_IN, MINUTE - 1, MINUTE]))
    def advance(self, ms: int) -> None:
        self.clock.advance(ms)

    @invariant()
    def flows_that_may_go_on_are_found(self) -> None:
        """Check that no flow is left alone whose planned times wait while nothing is in their way."""
        flows = self.memory.data.flows.values()
        free = {flow.flow_id for flow in flows if flow.overlap is OverlapPolicy.ALLOW or not flow.blocking_runs}
        waiting = {flow.flow_id for flow in flows if flow.queued}
        assert free & waiting <= set(self.run(self.memory.firings.waiting(EVERYWHERE, 50)))

    @invariant()
    def backfills_that_may_go_on_are_found(self) -> None:
        """Check that no backfill is left alone that may begin a cycle."""
        flows = [each for each in self.memory.data.flows.values() if each.status is not FlowStatus.PAUSED]
        under_way = {
            (flow.flow_id, backfill_id)
            for flow in flows
            for backfill_id, record in flow.backfills.items()
            if record.backfill.status is BackfillStatus.RUNNING
            and record.backfill.position_ms
            and list(flow.filling.values()).count(backfill_id) < record.backfill.draft.max_running
        }
        assert under_way <= set(self.run(self.memory.backfills.active(EVERYWHERE, 50)))

    @invariant()
    def stores_hold_the_same(self) -> None:
        flows = self.run(self.memory.flows.find(IDS))
        # Also of removed flows: nothing of them may be left.
        self.revisions = max([self.revisions, *(flow.revision for flow in flows if flow is not None)])
        self.both(partial(everything, self.revisions))


async def everything(revisions: int, store: Stores) -> list[Any]:
    """Return everything that can be read; no flow has had more than `revisions`."""
    return await together(
        store.flows.find(IDS),
        store.flows.list_ids("", 10),
        store.flows.outlines("", 100),
        store.cycles.begun_flows(IDS),
        store.open_runs.check(EVERYWHERE, 50),
        store.outbox.check(EVERYWHERE, 50),
        _sorted(store.firings.waiting(EVERYWHERE, 50)),
        store.backfills.active(EVERYWHERE, 50),
        store.ends.waiting(EVERYWHERE, 50),
        store.returns.waiting(EVERYWHERE, 50),
        *(everything_of(flow_id, revisions, store) for flow_id in IDS),
    )


async def everything_of(flow_id: str, revisions: int, store: Stores) -> list[Any]:
    """Return everything that can be read of one flow."""
    states, backfill_ids, *rest = await together(
        store.cycles.newest(flow_id, None, 50),
        store.backfills.ids(flow_id),
        store.revisions.newest(flow_id, 0, 50),
        store.memories.load(flow_id),
        store.open_runs.of_flow(flow_id, 50),
        store.firings.newest(flow_id, 0, 50),
    )
    details = await together(
        store.backfills.find(flow_id, backfill_ids),
        *(store.firings.newest(flow_id, 0, 50, backfill_id) for backfill_id in backfill_ids),
        *(store.flows.definition(flow_id, number) for number in range(1, revisions + 2)),
        *(_lines(store, state.name) for state in states),
    )
    return [states, backfill_ids, *rest, *details]


async def _lines(store: Stores, run: RunName) -> list[Any]:
    lines = await store.logs.read(run.flow_id, run.cycle)
    return [(line.level, line.source, line.text, line.at_ms) for line in lines]


async def _sorted(found: Awaitable[Iterable[Any]]) -> list[Any]:
    return sorted(await found)


def test_memory_and_redis_answer_alike(running_redis: RedisServer) -> None:
    run_histories(Twins, running_redis, 20)
