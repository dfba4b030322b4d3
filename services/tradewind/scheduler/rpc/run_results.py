"""Writes the results of runs: cycles, their outputs, and why there is none."""

from collections.abc import Sequence
from typing import TypeAlias

from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.scheduler.domain.beginning import BeginOutcome
from tradewind.scheduler.use_cases.faults import (
    cycle_not_found,
    flow_deleting,
    flow_not_found,
    flow_unreadable,
    kept_changing,
    overlap_skipped,
    request_id_reused,
)
from tradewind.scheduler.use_cases.run_cycles import RunResult
from tradewind.scheduler.use_cases.sink_outputs import LARGEST_OUTPUTS, Outputs
from tradewind.server.faults import Fault
from tradewind.server.sizes import size_of

WithOutputs: TypeAlias = pb2.RunFlowResponse | pb2.RunFlowResult | pb2.RerunCycleResponse | pb2.GetCycleResponse

_NODE_FRAME, _VALUE_FRAME = 16, 24
"""The most bytes of framing around the name of a node and its outputs, and around a handle and its value."""


def refusal(flow_id: str, result: RunResult, request_id: str) -> Fault | None:
    """Return why there is no cycle to answer with, None if there is one."""
    match result.outcome:
        case BeginOutcome.BEGUN:
            return None
        case BeginOutcome.DUPLICATE:
            if result.state is not None:
                return None
            return cycle_not_found(flow_id, result.run.cycle if result.run else None)
        case BeginOutcome.OVERLAP:
            return overlap_skipped(flow_id, result.run)
        case BeginOutcome.NOT_FOUND:
            return flow_not_found(flow_id)
        case BeginOutcome.DELETING:
            return flow_deleting(flow_id)
        case BeginOutcome.REUSED:
            return request_id_reused(request_id)
        case BeginOutcome.UNREADABLE:
            return flow_unreadable(flow_id)
        case _:
            return kept_changing(f'flow "{flow_id}"', flow_id=flow_id)


def add_outputs(to: WithOutputs, outputs: Sequence[tuple[str, Outputs]], room: int = LARGEST_OUTPUTS) -> int:
    """Add the outputs of nodes, in place: that costs half as much as building and copying messages.

    Returns how many bytes of `room` are left; -1 when the outputs do not fit, and are omitted.
    """
    size = _size(outputs)
    if size > room:
        to.outputs_omitted = True
        return -1
    for node_id, values in outputs:
        node = to.outputs.add()
        node.node_id = node_id
        for handle, value in values:
            output = node.outputs.add()
            output.handle, output.value_json = handle, value
    return room - size


def _size(outputs: Sequence[tuple[str, Outputs]]) -> int:
    size = 0
    for node_id, values in outputs:
        size += _NODE_FRAME + len(node_id)
        for handle, value in values:
            size += _VALUE_FRAME + size_of(handle) + size_of(value)
    return size
