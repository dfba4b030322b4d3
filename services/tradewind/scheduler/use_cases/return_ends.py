"""Reports to nodes that wait for cycles of other flows how those cycles ended."""

import asyncio
import json
from collections.abc import Collection, Sequence

import structlog

from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.sub_flow import FAILED, MAX_OUTPUT_BYTES, TOO_LARGE, SubFlowReport, failure_message
from tradewind.scheduler.ports.cycles import ChainStateRepository
from tradewind.scheduler.ports.ends import Ends
from tradewind.scheduler.ports.peers import NodeTasks, PeerRefused
from tradewind.scheduler.ports.sub_flows import SubFlowNodes
from tradewind.scheduler.use_cases.definitions import Definitions, PlannedRun
from tradewind.scheduler.use_cases.failed_nodes import failed_nodes, failure_text
from tradewind.scheduler.use_cases.load_portion import load_portion
from tradewind.scheduler.use_cases.sink_outputs import Outputs, SinkOutputs
from tradewind.server.faults import Unreadable
from tradewind.server.sizes import size_of

_AT_ONCE = 100
_READ_AT_ONCE = 20
_BYTES_AT_ONCE = 2 * 1024 * 1024
_MAX_NAMED = 3
"""The most failed nodes to name."""

_log = structlog.get_logger(__name__)


class ReturnEnds:
    """An end is kept until the node task manager has it. After a crash it may be reported again, which is harmless."""

    def __init__(
        self,
        returns: Ends,
        states: ChainStateRepository,
        definitions: Definitions,
        outputs: SinkOutputs,
        nodes: SubFlowNodes,
        node_tasks: NodeTasks,
    ) -> None:
        self._returns = returns
        self._states = states
        self._definitions = definitions
        self._outputs = outputs
        self._nodes = nodes
        self._node_tasks = node_tasks

    async def __call__(self, partitions: Collection[int]) -> None:
        """Report the ends that wait in partitions that the caller owns. Raises PeerUnavailable."""
        while ends := await self._returns.waiting(partitions, _AT_ONCE):
            states = await load_portion(self._states, [end.run for end in ends])
            ends = ends[: len(states)]
            # If a run's record is gone, the owner of the node finds out by itself.
            ended = [s for end, s in zip(ends, states, strict=True) if s is not None and s.facts.run_id == end.run_id]
            try:
                await self.report(ended)
            except PeerRefused as error:
                # Other ends must not wait behind these: looking after the parent runs reports them again.
                _log.error("ends_refused", runs=[str(end.run) for end in ends], error=error)
            await self._returns.remove(ends)

    async def report(self, ended: Sequence[ChainState]) -> None:
        """Report how these cycles ended. Raises PeerUnavailable."""
        reports: list[SubFlowReport] = []
        size = 0
        for first in range(0, len(ended), _READ_AT_ONCE):
            made = await asyncio.gather(*map(self._report, ended[first : first + _READ_AT_ONCE]))
            for report in filter(None, made):
                more = len(report.output_json.encode())
                if reports and (len(reports) == _AT_ONCE or size + more > _BYTES_AT_ONCE):
                    await self._nodes.report(reports)
                    reports, size = [], 0
                reports.append(report)
                size += more
        if reports:
            await self._nodes.report(reports)

    async def _report(self, state: ChainState) -> SubFlowReport | None:
        facts = state.facts
        parent = facts.parent
        if parent is None:
            return None
        if state.status is not CycleStatus.COMPLETED:
            nodes = await failed_nodes(self._node_tasks, state, min(state.counts().failed, _MAX_NAMED))
            error_text = "; ".join([failure_message(state), *map(failure_text, nodes)])
            return SubFlowReport(parent, facts.user_id, state.name, error_code=FAILED, error=error_text)
        output = state.notes.result_json
        if not output:
            try:
                planned = await self._definitions.of_run(state)
            except Unreadable as error:
                # Other ends must not wait behind this one.
                error_text = f'cycle {state.name.cycle} of flow "{state.name.flow_id}" completed, but {error}'
                return SubFlowReport(parent, facts.user_id, state.name, error_code=FAILED, error=error_text)
            sinks = await self._outputs([PlannedRun(state, planned)]) if planned is not None else [[]]
            output = _as_object(sinks[0])
        if size_of(output) > MAX_OUTPUT_BYTES:
            name = state.name
            error_text = (
                f'cycle {name.cycle} of flow "{name.flow_id}" completed, but emitted more than 1 MiB: make its last '
                "nodes emit less, or a reference to the data"
            )
            return SubFlowReport(parent, facts.user_id, name, error_code=TOO_LARGE, error=error_text, final=True)
        return SubFlowReport(parent, facts.user_id, state.name, output_json=output)


def _as_object(sinks: Sequence[tuple[str, Outputs]]) -> str:
    """Return the outputs of sinks as a JSON object, by node and handle."""
    nodes = (f"{json.dumps(node)}:{{{','.join(_pairs(outputs))}}}" for node, outputs in sinks)
    return "{" + ",".join(nodes) + "}"


def _pairs(outputs: Outputs) -> list[str]:
    return [f"{json.dumps(handle)}:{value}" for handle, value in outputs]
