"""The scheduler and the trigger service over their stores, under one clock that a test moves.

Nothing between them waits: due triggers are claimed, begun, handed over and answered step by step.
"""

import itertools
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.stores.scheduler.bench import Stores
from tests.stores.trigger.bench import BothPorts, token
from tests.unit.scheduler.memory_scheduler import wakes_nobody
from tests.waiting import until
from tradewind.api.trigger.v1 import trigger_service_pb2 as pb2
from tradewind.scheduler.domain.chain_state import ChainState, ComponentEnd
from tradewind.scheduler.domain.component_plan import ComponentPlan
from tradewind.scheduler.domain.due import DueAnswer, DueEvent, DueFlow
from tradewind.scheduler.domain.flow_record import FlowStop, Pause
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.submission import (
    ComponentEvent,
    ComponentView,
    StopOrder,
    Submission,
    SubmitAnswer,
    SubmitOutcome,
)
from tradewind.scheduler.domain.weather import read_weather
from tradewind.scheduler.peers.trigger import TriggerPeer
from tradewind.scheduler.use_cases.background import Background
from tradewind.scheduler.use_cases.begin_cycles import BeginCycles
from tradewind.scheduler.use_cases.begin_due import BeginDue
from tradewind.scheduler.use_cases.begin_queued import BeginQueued
from tradewind.scheduler.use_cases.begun_numbers import BegunNumbers
from tradewind.scheduler.use_cases.change_flow import ChangeFlow
from tradewind.scheduler.use_cases.definitions import Definitions
from tradewind.scheduler.use_cases.end_waiters import EndWaiters
from tradewind.scheduler.use_cases.fold_events import FoldEvents
from tradewind.scheduler.use_cases.hand_over import HandOver
from tradewind.scheduler.use_cases.open_states import OpenStates
from tradewind.scheduler.use_cases.read_flows import ReadFlows
from tradewind.scheduler.use_cases.settle_outbox import SettleOutbox
from tradewind.scheduler.use_cases.store_definition import Author, registration_of
from tradewind.scheduler.use_cases.supervise_runs import SuperviseRuns
from tradewind.scheduler.use_cases.told_triggers import ToldTriggers
from tradewind.scheduler.use_cases.trace_runs import TraceRuns
from tradewind.server.clock import ManualClock
from tradewind.server.partitions import partition_of
from tradewind.server.telemetry import Tracing
from tradewind.trigger.domain.claim import Ack, DueTrigger, Nack, Subscription
from tradewind.trigger.domain.event import Event, Outcome
from tradewind.trigger.ports.claims import ClaimOrder
from tradewind.trigger.ports.queues import FiringOrder, QueueStore
from tradewind.trigger.rpc import parsing

LEASE_MS = 20_000
CHECK_IN_MS = 5_000
COMPARE_MS = 3_600_000


class Killed(Exception):
    """The scheduler's process is gone."""


@dataclass
class SlowNodes:
    """A node task manager: each submitted run completes after `cycle_ms`, or when it is stopped."""

    clock: ManualClock
    cycle_ms: int
    running: dict[RunName, tuple[int, ChainState]] = field(default_factory=dict)
    submitted: list[RunName] = field(default_factory=list)
    ended: dict[RunName, ComponentEvent] = field(default_factory=dict)
    _new_ends: list[ComponentEvent] = field(default_factory=list)

    async def submit(self, runs: Sequence[Submission], plans: Sequence[ComponentPlan]) -> list[SubmitAnswer]:
        for run in runs:
            if run.state.name not in self.running and run.state.name not in self.ended:
                self.running[run.state.name] = (self.clock.now_ms() + self.cycle_ms, run.state)
                self.submitted.append(run.state.name)
        return [SubmitAnswer(SubmitOutcome.ACCEPTED) for _ in runs]

    async def stop(self, order: StopOrder) -> None:
        if order.run in self.running:
            self._end(order.run, ComponentEnd(terminated=1))

    async def components(self, runs: Sequence[ChainState]) -> list[ComponentView]:
        views = []
        for run in runs:
            if run.name in self.running:
                views.append(ComponentView(run.name, run.facts.run_id, "0", False, ComponentEnd()))
            elif run.name in self.ended:
                end = self.ended[run.name].end
                views.append(ComponentView(run.name, run.facts.run_id, "0", True, end))
        return views

    async def notify_stopped(self, flow_id: str, user_id: str, stop: FlowStop) -> None:
        """Nobody listens."""

    async def notify_paused(self, flow_id: str, user_id: str, pause: Pause) -> None:
        """Nobody listens."""

    def work(self) -> None:
        """End runs that have run for long enough."""
        for run, (ends_ms, _) in list(self.running.items()):
            if ends_ms <= self.clock.now_ms():
                self._end(run, ComponentEnd(completed=1, sinks_completed=1))

    def _end(self, run: RunName, end: ComponentEnd) -> None:
        _, state = self.running.pop(run)
        self.ended[run] = ComponentEvent(run, state.facts.run_id, "0", end, partition_of(run.flow_id), 0, "1")
        self._new_ends.append(self.ended[run])

    def take_ends(self) -> list[ComponentEvent]:
        """Return the ends that have not been asked for yet."""
        ends, self._new_ends = self._new_ends, []
        return ends


class _TriggerService:
    """Replaces the stub of the trigger service, over its store."""

    def __init__(self, store: BothPorts) -> None:
        self._store = store

    async def SaveTrigger(self, request: pb2.SaveTriggerRequest, timeout: float) -> None:
        await self._store.save(partition_of(request.trigger.partition_key), parsing.draft(request, 65_536, 0))

    async def RemoveTrigger(self, request: pb2.RemoveTriggerRequest, timeout: float) -> None:
        await self._store.remove(partition_of(request.partition_key), request.trigger_id, request.epoch)


class Triggers(TriggerPeer):
    """The real mapping of schedules to triggers, without a channel."""

    def __init__(self, store: BothPorts) -> None:
        self._stub = _TriggerService(store)  # type: ignore[assignment]


class Replica:
    """One scheduler; with `dies_after` its process ends as soon as that step of the next tick is done."""

    STEPS = ("claimed", "begun", "handed over", "answered")

    def __init__(
        self,
        name: str,
        partitions: Collection[int],
        clock: ManualClock,
        stores: Stores,
        triggers: BothPorts,
        nodes: SlowNodes,
    ) -> None:
        self.name = name
        self._partitions = partitions
        self.stores = stores
        self.dies_after = ""
        self.epochs: dict[int, int] = {}
        self._clock, self._triggers, self._nodes = clock, triggers, nodes
        self._nonces = itertools.count()
        # The part of a node task manager that schedules need.
        node_tasks: Any = nodes
        # No flow here runs another.
        no_sub_flows: Any = None
        open_states, waiters = OpenStates(), EndWaiters()
        definitions = Definitions(stores.flows)
        traces = TraceRuns(Tracing("test", None))
        begin = BeginCycles(stores.cycles, definitions, open_states, BegunNumbers(), traces, wakes_nobody, CHECK_IN_MS)
        self._fold = FoldEvents(stores.states, open_states, waiters, wakes_nobody, traces)
        self.hand_over = HandOver(node_tasks, stores.states, begin, self._fold, open_states, wakes_nobody, clock)
        self._begin_due = BeginDue(begin)
        self._begin_queued = BeginQueued(begin, stores.firings, lambda _flow_id: None)
        settle = SettleOutbox(
            stores.flows,
            stores.outbox,
            Triggers(triggers),
            node_tasks,
            (),
            wakes_nobody,
            lambda: None,
            ToldTriggers(),
            clock,
        )
        self.background = Background()
        read = ReadFlows(stores.flows, stores.cycles, stores.states)
        self.change = ChangeFlow(
            read,
            stores.flows,
            stores.states,
            node_tasks,
            settle,
            self.background,
            wakes_nobody,
            clock,
        )
        self._supervise = SuperviseRuns(
            stores.open_runs,
            stores.states,
            node_tasks,
            definitions,
            self.hand_over,
            self._fold,
            open_states,
            no_sub_flows,
            clock,
            COMPARE_MS,
        )

    async def own(self) -> None:
        """Take the partitions, whoever has them."""
        self.epochs = {each: await self.stores.partitions.acquire(each) for each in self._partitions}
        await self._triggers.subscribe(self._subscriptions())

    def _subscriptions(self) -> list[Subscription]:
        return [Subscription(partition, epoch, self.name) for partition, epoch in self.epochs.items()]

    async def step(self) -> None:
        """Do everything there is to do: fold what has ended, begin what waited, look after runs, begin what is due."""
        self._nodes.work()
        await self._fold(self._nodes.take_ends(), self.epochs)
        await self.hand_over(await self._begin_queued(self.epochs))
        checks = await self.stores.open_runs.check(self._partitions, 500)
        due = [run for check in checks.values() for run in check.due]
        await self._supervise(due, self.epochs)
        if await self.tick() or due:
            await self.step()

    async def claim(self) -> list[DueFlow]:
        """Claim what is due."""
        orders = [ClaimOrder(each, 100, LEASE_MS, f"{self.name}{next(self._nonces)}") for each in self._subscriptions()]
        claims = await self._triggers.claim_due(orders)
        return [_due(one) for claim in claims for one in claim.due]

    async def tick(self) -> int:
        """Begin what is due, like the loop of due triggers; return how many flows were due."""
        due = await self.claim()
        if due:
            await self.begin(due)
        return len(due)

    async def begin(self, due: Sequence[DueFlow]) -> None:
        """Begin the cycles of flows that are due, hand them over and answer."""
        self._done("claimed")
        begun = await self._begin_due(due, self.epochs)
        self._done("begun")
        await self.hand_over(begun.runs)
        self._done("handed over")
        await self.answer(begun.answers)
        self._done("answered")

    async def answer(self, answers: Sequence[DueAnswer]) -> None:
        acks, nacks = [], []
        for answer in answers:
            claim = token(answer.token)
            if answer.error:
                nacks.append(Nack(claim, answer.retry_ms, answer.error, postponed=True))
                continue
            following = answer.next_ms > 0
            ack = Ack(claim, answer.next_ms if following else None, finished=not following)
            trigger = await self._triggers.find(claim.partition, claim.trigger_id)
            acks.append(ack if trigger is None else ack.with_next_time(trigger, self._clock.now_ms()))
        await self._triggers.ack(acks, self.name)
        await self._triggers.nack(nacks, self.name)

    def _done(self, step: str) -> None:
        if step == self.dies_after:
            raise Killed


def _due(one: DueTrigger) -> DueFlow:
    trigger, event = one.trigger, one.trigger.event
    return DueFlow(
        trigger.partition_key,
        trigger.planned_ms,
        one.delivered_ms,
        trigger.epoch,
        one.token,
        event=DueEvent(event.id, event.name, event.payload_json) if event else None,
    )


class Clockwork:
    """Replicas over the same stores, and their clock. Times are in seconds from the clockwork's beginning."""

    def __init__(
        self,
        clock: ManualClock,
        triggers: BothPorts,
        queues: QueueStore,
        stores_of: Callable[[], Stores],
        cycle_ms: int,
        flows: Collection[str],
    ) -> None:
        self.clock = clock
        self.partitions = {partition_of(flow_id) for flow_id in flows}
        self.nodes = SlowNodes(clock, cycle_ms)
        self.triggers = triggers
        self._queues = queues
        self._stores_of = stores_of
        self._names = (f"s{number}" for number in itertools.count())
        self.begin_ms = clock.now_ms()

    async def replica(self) -> Replica:
        """Return a new scheduler that owns everything from now on."""
        made = self.another()
        await made.own()
        return made

    def another(self) -> Replica:
        """Return a new scheduler that owns nothing yet."""
        return Replica(next(self._names), self.partitions, self.clock, self._stores_of(), self.triggers, self.nodes)

    async def start(self, replica: Replica, flow_id: str = "f", **weather: Any) -> None:
        """Register and start a flow of one node."""
        definition = read_weather({"nodes": [{"id": "n", "type": "t"}], **weather}).definition
        assert definition is not None
        made = registration_of(flow_id, definition, {}, self.clock.now_ms(), Author())
        await replica.stores.flows.register(made)
        await replica.change.start(flow_id)

        async def trigger_saved() -> bool:
            return await self.triggers.find(partition_of(flow_id), flow_id) is not None

        await until(trigger_saved, "the trigger service knows when it is due")

    async def publish(self, name: str, event_id: str, payload: Mapping[str, Any]) -> int:
        """Publish an event as the trigger service does; return how many firings it made."""
        orders = [
            FiringOrder(one.partition, one.queue, one.trigger_id, one.schedule.start_ms)
            for one in await self._queues.listeners(name)
            if one.schedule.event and one.schedule.event.filter.matches(payload)
        ]
        outcomes = await self._queues.fire(orders, Event(event_id, name, json.dumps(payload)))
        return [*outcomes].count(Outcome.FIRED)

    async def run(self, replica: Replica, seconds: float) -> None:
        """Let time pass up to `seconds` from the beginning, stopping whenever there is something to do."""
        until_ms = self.begin_ms + int(seconds * 1000)
        await replica.step()
        while (moment := await self.next_ms(replica)) is not None and moment <= until_ms:
            self.clock.advance(max(0, moment - self.clock.now_ms()))
            await replica.step()
        self.clock.advance(until_ms - self.clock.now_ms())

    async def next_ms(self, replica: Replica) -> int | None:
        """Return when there is something to do next, None if there is nothing."""
        surveys = [(await self.triggers.poll([], partition))[1] for partition in self.partitions]
        checks = await replica.stores.open_runs.check(self.partitions, 1)
        moments = [head for survey in surveys for head in (survey.heads.due_ms, survey.heads.lapse_ms)]
        moments += [check.next_ms for check in checks.values()]
        moments += [ends_ms for ends_ms, _ in self.nodes.running.values()]
        upcoming = [moment for moment in moments if moment is not None]
        return max(min(upcoming), self.clock.now_ms()) if upcoming else None

    async def cycles(self, replica: Replica, flow_id: str = "f") -> list[tuple[int, float, float, str]]:
        """Return the cycles of a flow: number, planned time and start in seconds, status."""
        states = await replica.stores.cycles.newest(flow_id, None, 1000)
        return [
            (
                state.name.cycle,
                (state.facts.planned_ms - self.begin_ms) / 1000,
                (state.facts.start_ms - self.begin_ms) / 1000,
                state.status.value,
            )
            for state in reversed(states)
        ]

    async def ledger(self, replica: Replica, flow_id: str = "f") -> list[tuple[float, str]]:
        """Return the outcomes of planned times, in seconds; times with the same outcome are listed one by one."""
        lines = reversed(await replica.stores.firings.newest(flow_id, 0, 2000))
        return [((line.planned_ms - self.begin_ms) / 1000, line.outcome.value) for line in lines]
