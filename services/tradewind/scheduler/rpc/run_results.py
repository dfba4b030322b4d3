"""Writes the results of runs: cycles, their outputs, and why there is none."""

from collections.abc import Sequence
from typing import TypeAlias

from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.scheduler.domain.beginning import BeginOutcome
from tradewind.scheduler.rpc.checks import bytes_of
from tradewind.scheduler.rpc.cycle_mapping import fill_cycle, leave_out_large_fields
from tradewind.scheduler.use_cases.begin_cycles import CycleRequest
from tradewind.scheduler.use_cases.faults import (
    cycle_not_found,
    flow_deleting,
    flow_not_found,
    overlap_skipped,
    request_id_reused,
)
from tradewind.scheduler.use_cases.run_cycles import RunResult
from tradewind.scheduler.use_cases.sink_outputs import Outputs
from tradewind.server.faults import Aborted, Fault

LARGEST_OUTPUTS = 2 * 1024 * 1024
"""In bytes."""
_CYCLES, _ANSWER = 3 * 1024 * 1024, 4 * 1024 * 1024
"""The most bytes that the cycles of a bulk may take up, and the cycles together with the outputs."""

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
        case _:
            return Aborted("VERSION_CONFLICT", f'flow "{flow_id}" kept being registered again; try again')


def add_results(
    response: pb2.RunFlowsResponse, requests: Sequence[CycleRequest], results: Sequence[RunResult], request_id: str
) -> None:
    """Add the results of the next of these `requests`, in order."""
    for place, result in enumerate(results, len(response.results)):
        message = response.results.add()
        if result.state is not None:
            fill_cycle(message.cycle, result.state)
            continue
        fault = refusal(requests[place].flow_id, result, f"{request_id}/{place}")
        if fault is not None:
            message.error_reason = fault.reason
            message.error_message = fault.message


def fit_cycles(response: pb2.RunFlowsResponse) -> None:
    """Leave out the large fields of cycles when together they are too large."""
    if response.ByteSize() > _CYCLES:
        for message in response.results:
            leave_out_large_fields(message.cycle)


def room_for_outputs(response: pb2.RunFlowsResponse) -> int:
    """Return how many bytes of outputs the answer to a bulk has room for."""
    return min(LARGEST_OUTPUTS, _ANSWER - response.ByteSize())


def add_outputs(to: WithOutputs, outputs: Sequence[tuple[str, Outputs]], room: int = LARGEST_OUTPUTS) -> int:
    """Add the outputs of nodes, in place: that costs half as much as building and copying messages.

    Returns how many bytes of `room` are left; -1 when the outputs do not fit, and are omitted.
    """
    size = sum(_size(node_id, values) for node_id, values in outputs)
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


def _size(node_id: str, values: Outputs) -> int:
    around = _NODE_FRAME + len(node_id)
    return around + sum(_VALUE_FRAME + bytes_of(handle) + bytes_of(value) for handle, value in values)
