"""The scheduler's use cases over stores in memory, and a node task manager that is called directly."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from tradewind.scheduler.domain.chain_state import ChainState, ComponentEnd, UpdateResult
from tradewind.scheduler.domain.component_plan import ComponentPlan
from tradewind.scheduler.domain.flow_record import FlowRegistration
from tradewind.scheduler.domain.json_text import digest_of
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.run_update import RunUpdate
from tradewind.scheduler.domain.submission import ComponentEvent, StopOrder, Submission, SubmitAnswer, SubmitOutcome
from tradewind.scheduler.domain.weather import read_weather
from tradewind.scheduler.ports.waking import Work
from tradewind.scheduler.stores.memory import MemoryStores
from tradewind.scheduler.use_cases.begin_cycles import BeginCycles, CycleRequest
from tradewind.scheduler.use_cases.begun_numbers import BegunNumbers
from tradewind.scheduler.use_cases.definitions import Definitions, PlannedFlow, PlannedRun
from tradewind.scheduler.use_cases.end_waiters import EndWaiters
from tradewind.scheduler.use_cases.fold_events import FoldEvents
from tradewind.scheduler.use_cases.hand_over import HandOver
from tradewind.scheduler.use_cases.open_states import OpenStates
from tradewind.scheduler.use_cases.trace_runs import TraceRuns
from tradewind.server.clock import ManualClock
from tradewind.server.partitions import partition_of
from tradewind.server.telemetry import Tracing


@dataclass
class DirectNodeTasks:
    """Records its calls; refuses runs that name a plan it has not seen, and answers with `outcomes` first."""

    asked: list[tuple[list[RunName], list[str]]] = field(default_factory=list)
    plans: set[str] = field(default_factory=set)
    outcomes: list[SubmitAnswer | Exception] = field(default_factory=list)
    stopped: list[tuple[RunName, str]] = field(default_factory=list)

    async def submit(self, runs: Sequence[Submission], plans: Sequence[ComponentPlan]) -> list[SubmitAnswer]:
        self.asked.append(([run.state.name for run in runs], [plan.digest for plan in plans]))
        self.plans.update(plan.digest for plan in plans)
        if self.outcomes and isinstance(self.outcomes[0], Exception):
            raise self.outcomes.pop(0)  # type: ignore[misc]
        return [self._answer(run) for run in runs]

    async def stop(self, order: StopOrder) -> None:
        self.stopped.append((order.run, order.reason))

    def _answer(self, run: Submission) -> SubmitAnswer:
        if self.outcomes and isinstance(self.outcomes[0], SubmitAnswer):
            return self.outcomes.pop(0)  # type: ignore[return-value]
        unknown = tuple(digest for _, digest in run.components if digest not in self.plans)
        return SubmitAnswer(SubmitOutcome.PLAN_UNKNOWN if unknown else SubmitOutcome.ACCEPTED, unknown)


def wakes_nobody(work: Work, key: str, in_ms: int) -> None:
    """Implements WakeOwner where no loop runs."""


class MemoryScheduler:
    """Use cases, wired as in the application."""

    def __init__(self, node_tasks: DirectNodeTasks | None = None) -> None:
        self.clock = ManualClock()
        self.stores = MemoryStores(self.clock)
        tasks: Any = node_tasks or DirectNodeTasks()
        self.node_tasks = tasks
        self.open_states, self.numbers, self.waiters = OpenStates(), BegunNumbers(), EndWaiters()
        self.definitions = Definitions(self.stores.flows)
        traces = TraceRuns(Tracing("test", None))
        self.begin = BeginCycles(
            self.stores.cycles, self.definitions, self.open_states, self.numbers, traces, wakes_nobody, 5000
        )
        self.fold = FoldEvents(self.stores.states, self.open_states, self.waiters, wakes_nobody, traces)
        self.hand_over = HandOver(
            self.node_tasks, self.stores.states, self.begin, self.fold, self.open_states, wakes_nobody, self.clock
        )

    async def write(self, state: ChainState, fields: Collection[str]) -> UpdateResult:
        """Write these fields of one run."""
        (result,) = await self.stores.states.update_many([RunUpdate(state, fields)])
        return result

    async def register(
        self, flow_id: str = "f", nodes: int = 1, config: str = "", user_id: str = "", **fields: Any
    ) -> None:
        """Register a flow of unconnected nodes, so each is a component. A `schedule` replaces the interval."""
        listed = [{"id": f"n{at}", "type": "t", "config": {"at": at, "text": config}} for at in range(nodes)]
        fields = fields if "schedule" in fields else {"interval": 60, **fields}
        definition = read_weather({"overlap": "allow", "nodes": listed, **fields}).definition
        assert definition is not None
        config_json = definition.to_json()
        made = FlowRegistration(
            flow_id,
            user_id,
            config_json,
            "{}",
            (),
            digest_of(config_json),
            definition.schedule,
            definition.overlap,
            definition.keep_cycles,
        )
        await self.stores.flows.register(made)

    async def run(self, flow_id: str = "f", **changes: Any) -> PlannedRun:
        """Begin a cycle."""
        (begun,) = await self.begin([CycleRequest(flow_id, **changes)])
        assert begun.run is not None, begun.answer
        return begun.run

    async def state(self, run: RunName) -> ChainState:
        """Return the state on record."""
        found = await self.stores.states.load(run)
        assert found is not None, run
        return found

    async def planned(self, flow_id: str = "f") -> PlannedFlow:
        """Return the current definition."""
        await self.definitions.load([flow_id])
        planned = self.definitions.current(flow_id)
        assert planned is not None, flow_id
        return planned


def event(state: ChainState, component_id: str = "0", *, run_id: str = "", **end: int) -> ComponentEvent:
    """Return the end of a component whose only node completed, unless `end` says otherwise."""
    ended = ComponentEnd(**(end or {"completed": 1, "sinks_completed": 1}))
    partition = partition_of(state.name.flow_id)
    return ComponentEvent(state.name, run_id or state.facts.run_id, component_id, ended, partition, 0, "1")
