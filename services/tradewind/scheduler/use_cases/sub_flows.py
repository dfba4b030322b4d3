"""Runs cycles for nodes of type `flow` of other flows: begins one for each attempt, stops it when nobody waits."""

import asyncio
from collections.abc import Sequence

import structlog

from tradewind.scheduler.domain.beginning import BeginOutcome
from tradewind.scheduler.domain.chain_state import ChainState, CycleOrigin
from tradewind.scheduler.domain.cycle_status import is_terminal
from tradewind.scheduler.domain.flow_record import RememberedRequest
from tradewind.scheduler.domain.parent import Parent
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.sub_flow import FAILED, INPUT_TOO_LARGE, SubFlowEvent, SubFlowReport, SubFlowWait
from tradewind.scheduler.ports.cycles import ChainStateRepository
from tradewind.scheduler.ports.flows import FlowRecords
from tradewind.scheduler.ports.sub_flows import SubFlowNodes
from tradewind.scheduler.use_cases.begin_cycles import CycleRequest
from tradewind.scheduler.use_cases.load_portion import portions
from tradewind.scheduler.use_cases.return_ends import ReturnEnds
from tradewind.scheduler.use_cases.run_cycles import RunCycles, RunResult
from tradewind.scheduler.use_cases.stop_cycle import StopCycle
from tradewind.server.built_in.flows import MAX_DEPTH, MAX_INPUT_BYTES
from tradewind.server.faults import FailedPrecondition, NotFound, Unreadable

_AT_ONCE = 100
_NOT_AWAITED = "nothing waits for this cycle any longer: the node that it ran for has ended"

_log = structlog.get_logger(__name__)


class SubFlows:
    """Level-triggered: it goes by the waiting nodes and the cycles on record; doing everything again is harmless."""

    def __init__(
        self,
        nodes: SubFlowNodes,
        flows: FlowRecords,
        states: ChainStateRepository,
        run: RunCycles,
        stop: StopCycle,
        return_ends: ReturnEnds,
    ) -> None:
        self._nodes = nodes
        self._flows = flows
        self._states = states
        self._run = run
        self._stop = stop
        self._return_ends = return_ends

    async def handle(self, events: Sequence[SubFlowEvent]) -> None:
        """Begin the cycles that events ask for, and stop cycles that nobody waits for. Raises PeerUnavailable."""
        wanted: dict[tuple[RunName, str, str], list[str]] = {}
        unwanted: list[tuple[RunName, Parent]] = []
        for event in events:
            if event.abandoned is None:
                wanted.setdefault((event.run, event.run_id, event.user_id), []).append(event.node)
            else:
                unwanted.append((event.abandoned, Parent(event.run, event.run_id, event.node, 0)))
        await self._stop_children(unwanted)
        asked = list(wanted.items())
        for first in range(0, len(asked), _AT_ONCE):
            await asyncio.gather(*(self._begin(*of, nodes) for of, nodes in asked[first : first + _AT_ONCE]))

    async def check(self, state: ChainState) -> None:
        """Look after the waiting nodes of an open run. Raises PeerUnavailable.

        Begins cycles that have not begun, and reports those that have ended.
        """
        nodes: list[str] = []
        # A store that has lost the cycle of one node may have given its number to the cycle of another one.
        known: dict[RunName, list[SubFlowWait]] = {}
        async for wait in self._nodes.waits(state.name, state.facts.user_id):
            if wait.run_id != state.facts.run_id:
                continue
            if wait.child is None:
                nodes.append(wait.node)
            else:
                known.setdefault(wait.child, []).append(wait)
        await self._begin(state.name, state.facts.run_id, state.facts.user_id, nodes)
        async for children in portions(self._states, list(known)):
            lost: list[SubFlowReport] = []
            ended: list[ChainState] = []
            for name, child in children.items():
                for wait in known[name]:
                    parent = Parent(state.name, state.facts.run_id, wait.node, wait.attempt)
                    if child is None or child.facts.parent is None or child.facts.parent.task_id != parent.task_id:
                        error = f'cycle {name.cycle} of flow "{name.flow_id}" is no longer on record'
                        lost.append(SubFlowReport(parent, state.facts.user_id, name, error_code=FAILED, error=error))
                    elif is_terminal(child.status):
                        ended.append(child)
            await self._report(lost)
            await self._return_ends.report(ended)

    async def stop_unwanted(self, children: Sequence[ChainState]) -> None:
        """Stop those of these open cycles whose nodes no longer wait for them. Raises PeerUnavailable."""
        for first in range(0, len(children), _AT_ONCE):
            chunk = [(child, child.facts.parent) for child in children[first : first + _AT_ONCE] if child.stop is None]
            begun = [SubFlowReport(parent, child.facts.user_id, child.name) for child, parent in chunk if parent]
            await self._report(begun)

    async def _begin(self, run: RunName, run_id: str, user_id: str, nodes: Sequence[str]) -> None:
        """Begin a cycle for each of these nodes that waits for one, and report it."""
        if not nodes:
            return
        state = await self._states.load(run)
        depth = state.facts.parent.depth if state is not None and state.facts.parent is not None else 0
        left = list(dict.fromkeys(nodes))
        while left:
            waits = await self._nodes.inputs(run, user_id, left[:_AT_ONCE])
            # An answer that would be too large stops early: go on after its last node. Nodes missing before that, or
            # from a full answer, do not wait.
            seen = left.index(waits[-1].node) + 1 if waits and len(waits) < len(left[:_AT_ONCE]) else _AT_ONCE
            left = left[seen:]
            await self._begin_waiting(
                [
                    (Parent(run, run_id, wait.node, wait.attempt, depth + 1), wait)
                    for wait in waits
                    if wait.run_id == run_id and wait.child is None
                ],
                user_id,
                state.facts.traceparent if state is not None else "",
            )

    async def _begin_waiting(self, waits: Sequence[tuple[Parent, SubFlowWait]], user_id: str, traceparent: str) -> None:
        flow_ids = sorted({wait.flow_id for _, wait in waits})
        owners = dict(zip(flow_ids, await self._flows.owners(flow_ids), strict=True))
        reports: list[SubFlowReport] = []
        requests: list[tuple[Parent, CycleRequest]] = []
        for parent, wait in waits:
            refusal = _refusal(parent, wait, owners[wait.flow_id], user_id)
            if refusal is not None:
                reports.append(refusal)
                continue
            remembered = RememberedRequest(user_id, wait.flow_id, parent.request_id, "begin")
            request = CycleRequest(
                wait.flow_id,
                CycleOrigin.SUB_FLOW,
                inputs_json="" if wait.inputs_json == "{}" else wait.inputs_json,
                request=remembered,
                traceparent=traceparent,
                parent=parent,
            )
            requests.append((parent, request))
        if requests:
            results = await self._run([request for _, request in requests])
            # A flow that keeps being registered again passes: its nodes wait until their run is looked after again.
            reports += [
                _begun(parent, request.flow_id, user_id, result)
                for (parent, request), result in zip(requests, results, strict=True)
                if result.outcome is not BeginOutcome.REVISION_CHANGED
            ]
        await self._report(reports)

    async def _report(self, reports: Sequence[SubFlowReport]) -> None:
        """Report, and stop cycles that nobody waits for."""
        for first in range(0, len(reports), _AT_ONCE):
            chunk = reports[first : first + _AT_ONCE]
            awaited = await self._nodes.report(chunk)
            await self._stop_children(
                [
                    (report.child, report.parent)
                    for report, is_awaited in zip(chunk, awaited, strict=True)
                    if not is_awaited and report.child is not None and not report.error_code
                ]
            )

    async def _stop_children(self, children: Sequence[tuple[RunName, Parent]]) -> None:
        """Stop cycles that run for these nodes; leave those alone that are already stopping, have ended or are gone."""
        for first in range(0, len(children), _AT_ONCE):
            chunk = children[first : first + _AT_ONCE]
            states = await self._states.load_many([child for child, _ in chunk])
            await asyncio.gather(
                *(self._stop_child(state, parent) for (_, parent), state in zip(chunk, states, strict=True) if state)
            )

    async def _stop_child(self, state: ChainState, parent: Parent) -> None:
        recorded = state.facts.parent
        if state.stop is not None or is_terminal(state.status):
            return
        if recorded is None or (recorded.task_id, recorded.run_id) != (parent.task_id, parent.run_id):
            return
        _log.info("sub_flow_stopped", run=str(state.name), node_task=parent.task_id)
        try:
            await self._stop(*state.name, "scheduler", f"{_NOT_AWAITED}: {parent.task_id}", once=True, wait=True)
        except (NotFound, FailedPrecondition):
            return
        except Unreadable as error:
            # The other cycles must not wait for this one; the next check tries again.
            _log.warning("sub_flow_not_stopped", run=str(state.name), error=error)


def _refusal(parent: Parent, wait: SubFlowWait, owner: str | None, user_id: str) -> SubFlowReport | None:
    """Return why no cycle may begin for a node, None if one may; `final` says that trying again is useless."""
    code, final = FAILED, True
    if parent.too_deep:
        error = (
            f"flows may run flows at most {MAX_DEPTH} levels deep, and this would be level {parent.depth}; "
            "does a flow run itself?"
        )
    elif wait.input_bytes > MAX_INPUT_BYTES:
        code = INPUT_TOO_LARGE
        error = (
            f"the inputs of the cycle would be {wait.input_bytes} bytes; at most 1 MiB is allowed: "
            "pass a reference to the data"
        )
    elif owner is None:
        error, final = f'flow "{wait.flow_id}" is not registered; register it, and run this again', False
    elif owner != user_id:
        error = f'flow "{wait.flow_id}" belongs to somebody else; a flow can only run flows of the same user'
    else:
        return None
    return SubFlowReport(parent, user_id, None, error_code=code, error=error, final=final)


def _begun(parent: Parent, flow_id: str, user_id: str, result: RunResult) -> SubFlowReport:
    if result.outcome in (BeginOutcome.BEGUN, BeginOutcome.DUPLICATE) and result.run is not None:
        return SubFlowReport(parent, user_id, result.run)
    error = {
        BeginOutcome.NOT_FOUND: f'flow "{flow_id}" is not registered; register it, and run this again',
        BeginOutcome.DELETING: f'flow "{flow_id}" is being deleted; register it again, and run this again',
        BeginOutcome.UNREADABLE: f'a record of flow "{flow_id}" cannot be read; tradewind doctor says which',
    }.get(result.outcome, f'no cycle of flow "{flow_id}" could begin: {result.outcome.value}')
    return SubFlowReport(parent, user_id, None, error_code=FAILED, error=error)
