"""Runs a cycle again, keeping the good results."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tradewind.api.node_task_manager.v1.node_task_pb2 import NodeTaskStatus
from tradewind.scheduler.domain.beginning import BeginAnswer, BeginOutcome
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.cycle_status import is_terminal
from tradewind.scheduler.domain.flow_record import RememberedRequest
from tradewind.scheduler.domain.node_status import NodeStatus
from tradewind.scheduler.domain.rerun import NodeResult, Rerun, divide
from tradewind.scheduler.ports.cycles import ChainStateRepository, CycleRecords
from tradewind.scheduler.ports.peers import NodeTasks
from tradewind.scheduler.use_cases.await_ends import AwaitEnds
from tradewind.scheduler.use_cases.begin_cycles import BeginCycles
from tradewind.scheduler.use_cases.definitions import Definitions, PlannedFlow, PlannedRun
from tradewind.scheduler.use_cases.faults import (
    cycle_not_found,
    cycle_running,
    flow_deleting,
    flow_not_found,
    not_latest_run,
    nothing_to_rerun,
    request_id_reused,
    results_expired,
    revision_expired,
    too_many_runs,
)
from tradewind.scheduler.use_cases.hand_over import HandOver
from tradewind.scheduler.use_cases.read_flows import ReadFlows
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.large_work import in_thread_if
from tradewind.server.nearest_name import NearestName
from tradewind.server.quoting import quoted

MAX_RUNS = 1000
_MANY = 500
"""To divide more nodes takes over 2 ms."""
_STATUS = {
    NodeTaskStatus.NODE_TASK_STATUS_COMPLETED: NodeStatus.COMPLETED,
    NodeTaskStatus.NODE_TASK_STATUS_FAILED: NodeStatus.FAILED,
    NodeTaskStatus.NODE_TASK_STATUS_TERMINATED: NodeStatus.TERMINATED,
    NodeTaskStatus.NODE_TASK_STATUS_SKIPPED: NodeStatus.SKIPPED,
}


@dataclass(frozen=True, slots=True)
class RerunOptions:
    """The arguments of a rerun of the latest cycle, or of `cycle`, from its latest run.

    `run` makes sure that the caller means the latest run. `inputs_json` is an object, or empty; its fields replace
    those of the previous run.
    """

    flow_id: str
    cycle: int | None = None
    run: int | None = None
    from_nodes: tuple[str, ...] = ()
    inputs_json: str = ""
    by: str = "user"
    reason: str = ""
    request: RememberedRequest | None = None
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class RerunResult:
    """The new run; `planned` is None for a repeated request when the revision is no longer on record."""

    state: ChainState
    planned: PlannedFlow | None = None


class RerunCycle:
    """Works out what to keep of the previous run, then begins the new run and hands it over."""

    def __init__(
        self,
        read: ReadFlows,
        cycles: CycleRecords,
        states: ChainStateRepository,
        node_tasks: NodeTasks,
        definitions: Definitions,
        begin: BeginCycles,
        hand_over: HandOver,
        await_ends: AwaitEnds,
    ) -> None:
        self._read = read
        self._cycles = cycles
        self._states = states
        self._node_tasks = node_tasks
        self._definitions = definitions
        self._begin = begin
        self._hand_over = hand_over
        self._await_ends = await_ends

    async def __call__(self, options: RerunOptions, wait_s: float = 0.0) -> RerunResult:
        """Begin the run and hand it over; with `wait_s`, return when it has ended or the time is up.

        Raises NotFound, InvalidInput, FailedPrecondition, Conflict, and PeerUnavailable when the node task manager,
        which has the results, is away.
        """
        if options.request is not None:
            answered = await self._cycles.first_answer(options.request)
            if answered is not None:
                return await self._repeated(options, answered, wait_s)
        before = await self._read.cycle(options.flow_id, options.cycle, options.run)
        await self._require_rerunnable(before)
        planned = await self._definitions.of_run(before)
        if planned is None:
            raise revision_expired(before)
        _require_nodes(planned, before.facts.revision, options.from_nodes)
        results = await self._results(before)
        rerun, again = await in_thread_if(len(results) > _MANY, _divided, before, planned, options, results)
        inputs_json = _merged_inputs(before.facts.inputs_json, options.inputs_json, planned, again)
        answer = await self._begin.rerun(
            before, planned.shape, rerun, inputs_json, options.request, options.traceparent
        )
        if answer.state is None:
            return await self._repeated(options, answer, wait_s)
        state = answer.state
        waits = [self._await_ends.begin([state])] if wait_s > 0 else []
        try:
            (state,) = await self._hand_over([PlannedRun(state, planned)])
        except BaseException:
            self._await_ends.abandon(waits)
            raise
        if waits:
            state = (await self._await_ends.finish(waits, wait_s)).get(state.name, state)
        return RerunResult(state, planned)

    async def _require_rerunnable(self, before: ChainState) -> None:
        if not is_terminal(before.status):
            raise cycle_running(before.name)
        latest = await self._cycles.latest_run(before.name.flow_id, before.name.cycle)
        if latest is not None and latest != before.name:
            raise not_latest_run(before.name, latest)
        if before.name.run >= MAX_RUNS:
            raise too_many_runs(before.name, MAX_RUNS)

    async def _repeated(self, options: RerunOptions, answer: BeginAnswer, wait_s: float) -> RerunResult:
        """Return the run that this request has begun before; raise the error if it is refused."""
        match answer.outcome:
            case BeginOutcome.NOT_FOUND:
                raise flow_not_found(options.flow_id)
            case BeginOutcome.DELETING:
                raise flow_deleting(options.flow_id)
            case BeginOutcome.REUSED:
                raise request_id_reused(options.request.request_id if options.request else "")
            case BeginOutcome.NOT_ENDED if answer.run is not None:
                raise cycle_running(answer.run)
            case BeginOutcome.NOT_LATEST if answer.run is not None:
                raise not_latest_run(answer.run._replace(run=answer.run.run - 1), answer.run)
        assert answer.run is not None
        if wait_s > 0:
            waits = [await self._await_ends.begin_late([answer.run])]
            await self._await_ends.finish(waits, wait_s)
        state = await self._states.load(answer.run)
        if state is None or state.facts.run_id != answer.run_id:
            raise cycle_not_found(options.flow_id, answer.run.cycle, answer.run.run)
        planned = await self._definitions.of_run(state)
        return RerunResult(state, planned)

    async def _results(self, before: ChainState) -> dict[str, NodeResult]:
        results: dict[str, NodeResult] = {}
        token = ""
        while True:
            page = await self._node_tasks.node_tasks(before, page_token=token)
            for task in page.node_tasks:
                if task.run_id == before.facts.run_id:
                    status = _STATUS.get(task.status, NodeStatus.REGISTERED)
                    results[task.node_id] = NodeResult(status, frozenset(task.emitted_handles))
            token = page.next_page_token
            if not token:
                return results


def _divided(
    before: ChainState, planned: PlannedFlow, options: RerunOptions, results: Mapping[str, NodeResult]
) -> tuple[Rerun, frozenset[str]]:
    """Return what the rerun keeps, and the nodes that run again. Raises FailedPrecondition."""
    begin_at = frozenset(options.from_nodes)
    kept: list[tuple[str, tuple[int, ...]]] = []
    again: set[str] = set()
    expired: list[str] = []
    handlers = frozenset(planned.shape.handlers.all if planned.shape.handlers else ())
    for component_id, digest in planned.components:
        plan = planned.plans[digest]
        if component_id in handlers:
            # These run in every run; one that has failed, or whose node is named, is a reason for a rerun.
            end = before.components.get(component_id)
            node_ids = {node.node_id for node in plan.nodes}
            if end is None or end.failed + end.terminated > 0 or node_ids & begin_at:
                again |= node_ids
            continue
        divided = divide(plan, results, begin_at)
        if divided.kept:
            kept.append((component_id, divided.kept))
        again.update(plan.nodes[place].node_id for place in divided.again)
        unknown = [plan.nodes[place].node_id for place in divided.expired]
        # If the component never ended, results that are missing have not expired: there never were any.
        if component_id in before.components:
            expired += unknown
        else:
            again.update(unknown)
    if expired:
        raise results_expired(before.name, expired)
    if not again:
        raise nothing_to_rerun(before.name)
    rerun = Rerun(before.name.run, before.facts.run_id, tuple(kept), options.from_nodes, options.by, options.reason)
    return rerun, frozenset(again)


def _require_nodes(planned: PlannedFlow, revision: int, node_ids: Sequence[str]) -> None:
    """Raise InvalidInput unless the revision of the cycle has all these nodes; the flow may have others by now."""
    known = set(planned.shape.node_ids)
    names = NearestName(known)
    faults = [
        Violation(
            f"from_node_ids[{place}]",
            f"revision {revision} of the flow, with which the cycle began, has no node {quoted(node_id)}"
            f"{names.hint(node_id)}",
        )
        for place, node_id in enumerate(node_ids)
        if node_id not in known
    ]
    if faults:
        raise InvalidInput(faults)


def _merged_inputs(before: str, given: str, planned: PlannedFlow, again: frozenset[str]) -> str:
    """Return the inputs of the new run. Raises InvalidInput when no node that runs again would see those given."""
    if not given:
        return before
    if not any(_is_entry(planned, digest, again) for _, digest in planned.components):
        message = "reach only entry nodes, and no entry node runs again: name one in from_node_ids"
        raise InvalidInput([Violation("inputs_json", message)])
    return json.dumps({**json.loads(before or "{}"), **json.loads(given)}, ensure_ascii=False)


def _is_entry(planned: PlannedFlow, digest: str, again: frozenset[str]) -> bool:
    plan = planned.plans[digest]
    targets = {edge.target for edge in plan.edges}
    return any(node.node_id in again and place not in targets for place, node in enumerate(plan.nodes))
