"""Random beginnings of cycles, for memory and Redis alike."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from msgspec import structs

from tests.stores.scheduler.bench import CHECK_IN, MINUTE, backfill_draft, request_of, schedule_fields, shape
from tests.stores.scheduler.random_flows import RandomFlows, ids, picks, requests
from tradewind.scheduler.domain.backfill import BackfillStep
from tradewind.scheduler.domain.beginning import BeginRequest, EventFiring, RerunRequest
from tradewind.scheduler.domain.chain_state import CycleOrigin
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.firing import FiringOutcome
from tradewind.scheduler.domain.flow_record import RememberedRequest
from tradewind.scheduler.domain.parent import Parent
from tradewind.scheduler.domain.rerun import Rerun
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.schedule_definition import ScheduleDefinition

seldom = st.sampled_from([0, 0, 0, 1])


def about_flow(flow_id: str, request: tuple[str, str] | None) -> RememberedRequest | None:
    return request_of(*request, flow_id=flow_id) if request else None


class RandomBeginnings(RandomFlows):
    """Cycles that begin for every possible reason: on request, planned, on events, queued, for backfills, again."""

    def begin_request(self, flow_id: str, **changes: Any) -> BeginRequest:
        flow = self.flow(flow_id)
        revision = flow.revision if flow else 1
        keep = flow.keep_cycles if flow else 1
        schedule = flow.schedule if flow else ScheduleDefinition()
        made = shape(flow_id, revision, keep_cycles=keep, schedule=schedule, timeout_ms=0 if schedule.once else 9000)
        made = replace(made, digest=flow.digest if flow else "d1")
        request = BeginRequest(made, f"run{next(self.numbers)}", CycleOrigin.RUN_FLOW, CHECK_IN)
        return structs.replace(request, **changes)

    def begin(self, *begin_requests: BeginRequest) -> None:
        epochs = self.epochs
        self.both(lambda store: store.cycles.begin(begin_requests, epochs))
        self.refresh()

    @rule(flow_ids=st.lists(ids, min_size=1, max_size=3), request=requests, inputs=st.sampled_from(["", '{"a":"ü"}']))
    def begin_now(self, flow_ids: list[str], request: tuple[str, str] | None, inputs: str) -> None:
        self.begin(
            *(
                self.begin_request(flow_id, request=about_flow(flow_id, request), inputs_json=inputs)
                for flow_id in flow_ids
            )
        )

    @rule(flow_id=ids, attempt=st.integers(1, 3))
    def begin_for_a_node(self, flow_id: str, attempt: int) -> None:
        parent = Parent(RunName("above", 3, 1), "r", "ü:7", attempt, 2)
        request = request_of(parent.request_id, flow_id=flow_id)
        self.begin(self.begin_request(flow_id, origin=CycleOrigin.SUB_FLOW, parent=parent, request=request))

    @rule(flow_ids=st.lists(ids, min_size=3, max_size=8))
    def begin_many_for_nodes(self, flow_ids: list[str]) -> None:
        """Begin cycles that no overlap policy counts, so that many of one flow run."""
        begin_requests = []
        for flow_id in flow_ids:
            parent = Parent(RunName("above", 3, 1), "r", f"m:{next(self.numbers)}", 1, 2)
            begin_requests.append(self.begin_request(flow_id, origin=CycleOrigin.SUB_FLOW, parent=parent))
        self.begin(*begin_requests)

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
        request = self.begin_request(
            flow_id,
            schedule_epoch=flow.schedule_epoch - older,
            ahead=due > self.clock.now_ms(),
            **schedule_fields(flow.schedule, due, max(due, self.clock.now_ms())),
        )
        if digest is not None:
            request = structs.replace(request, shape=replace(request.shape, digest=digest))
        self.begin(structs.replace(request, shape=replace(request.shape, revision=request.shape.revision - stale)))

    @rule(
        flow_ids=st.lists(ids, min_size=1, max_size=3),
        came=st.integers(-2, 2),
        older=st.sampled_from([0, 0, 0, 1, 100_000]),
        stale=seldom,
        refused=st.sampled_from([None, None, (FiringOutcome.MISSED, "late ü")]),
        event_id=st.sampled_from(["e", "a b/ü@1", "x" * 128]) | st.integers(0, 99).map("e{}".format),
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
        begin_requests = []
        for flow_id in flow_ids:
            flow = self.flow(flow_id)
            request = self.begin_request(
                flow_id,
                origin=CycleOrigin.SCHEDULE,
                planned_ms=due,
                due_ms=due,
                next_ms=0 if over or flow is None else flow.schedule.standby_ms,
                schedule_epoch=flow.schedule_epoch - older if flow else 0,
                inputs_json='{"n": 1,\n"event": {"id": "ü"}}',
                event=EventFiring(event_id, *refused) if refused else EventFiring(event_id),
            )
            begin_requests.append(
                structs.replace(request, shape=replace(request.shape, revision=request.shape.revision - stale))
            )
        self.begin(*begin_requests, self.begin_request(flow_ids[0]))

    @rule(flow_ids=st.lists(ids, min_size=1, max_size=3))
    def begin_queued(self, flow_ids: list[str]) -> None:
        self.begin(*(self.begin_request(flow_id, origin=CycleOrigin.SCHEDULE, queued=True) for flow_id in flow_ids))

    @rule(flow_id=ids, minutes=st.integers(1, 4), most=st.integers(1, 3), request=requests)
    def backfill(self, flow_id: str, minutes: int, most: int, request: tuple[str, str] | None) -> None:
        end = self.clock.now_ms() // MINUTE * MINUTE
        draft = backfill_draft(end - minutes * MINUTE, end, most, flow_id)
        draft = replace(draft, request=about_flow(flow_id, request and (f"fill-{request[0]}", request[1])))
        self.both(lambda store: store.backfills.create(draft))

    @rule(flow_id=ids, pick=st.integers(0, 1), late=seldom)
    def begin_backfill(self, flow_id: str, pick: int, late: int) -> None:
        backfill_ids = self.both(lambda store: store.backfills.ids(flow_id))
        wanted = backfill_ids[pick : pick + 1]
        for backfill in self.both(lambda store: store.backfills.find(flow_id, wanted)):
            for step in backfill.steps() if backfill else ():
                step = replace(step, position_ms=step.position_ms - late * MINUTE)
                self.begin(
                    self.begin_request(flow_id, origin=CycleOrigin.BACKFILL, planned_ms=step.position_ms, backfill=step)
                )

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
        self.begin(self.begin_request(state.name.flow_id, **changes))

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
        remembered = about_flow(source.name.flow_id, request)
        rerun_request = RerunRequest(source, f"run{next(self.numbers)}", rerun, CHECK_IN, 9000, inputs, "", remembered)
        self.both(lambda store: store.cycles.begin_rerun(rerun_request))
        if remembered is not None:
            self.both(lambda store: store.cycles.first_answer(remembered))
        self.refresh()
