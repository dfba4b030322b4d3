"""Reads requests to run flows, and writes their results."""

import asyncio
import hashlib
from collections.abc import Sequence
from typing import TypeAlias

import msgspec
from google.protobuf.message import Message

from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.scheduler.domain.beginning import BeginOutcome
from tradewind.scheduler.domain.flow_record import DEFAULT_USER, REMEMBERED_MS, RememberedRequest
from tradewind.scheduler.rpc.checks import every, require
from tradewind.scheduler.rpc.cycle_mapping import fill_cycle
from tradewind.scheduler.rpc.times import seconds_of
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
from tradewind.server.faults import Aborted, Fault, InvalidInput, Violation
from tradewind.server.identifiers import check_identifier, is_identifier, request_id_faults
from tradewind.server.json_depth import check_depth

MOST_ITEMS = 10_000
LONGEST_WAIT_S = 3600.0
LARGEST_INPUTS = 1024 * 1024
LARGEST_OUTPUTS = 2 * 1024 * 1024
"""In bytes, like LARGEST_INPUTS."""
_CYCLES, _ANSWER = 3 * 1024 * 1024, 4 * 1024 * 1024
"""The most bytes that the cycles of a bulk may take up, and the cycles together with the outputs."""

WithOutputs: TypeAlias = pb2.RunFlowResponse | pb2.RunFlowResult | pb2.RerunCycleResponse | pb2.GetCycleResponse

_AT_ONCE = 500
"""How many items of a bulk are read before other work has a turn."""
_NODE_FRAME, _VALUE_FRAME = 16, 24
"""The most bytes of framing around the name of a node and its outputs, and around a handle and its value."""

_json_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


async def cycle_requests_of(
    call: pb2.RunFlowsRequest | pb2.RunFlowRequest,
    items: Sequence[pb2.RunFlowItem | pb2.RunFlowRequest],
    traceparent: str,
) -> tuple[list[CycleRequest], float]:
    """Return the cycles that a call requests, and how many seconds to wait; a RunFlowRequest is its own only item.

    Raises InvalidInput with every fault.
    """
    bulk = isinstance(call, pb2.RunFlowsRequest)
    request_id = call.request_id
    faults = request_id_faults(request_id)
    try:
        wait_s, lifetime_ms = every(lambda: wait_of(call), lambda: lifetime_of(call))
    except InvalidInput as error:
        wait_s, lifetime_ms = 0.0, 0
        faults += error.violations
    requests: list[CycleRequest] = []
    for place, item in enumerate(items):
        if place % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
        flow_id, inputs_json = item.flow_id, item.inputs_json
        if inputs_json or not is_identifier(flow_id):
            faults += _item_faults(f"items[{place}]." if bulk else "", flow_id, inputs_json)
        remembered = None
        if request_id:
            name = f"{request_id}/{place}" if bulk else request_id
            remembered = RememberedRequest(DEFAULT_USER, name, _payload(flow_id, inputs_json), lifetime_ms)
        requests.append(CycleRequest(flow_id, inputs_json=inputs_json, request=remembered, traceparent=traceparent))
    require(faults)
    return requests, wait_s


def check_inputs(inputs_json: str, request_id: str) -> None:
    """Raise InvalidInput for inputs that are not a JSON object, or an illegal request_id."""
    faults = request_id_faults(request_id)
    if inputs_json and (fault := _inputs_fault("inputs_json", inputs_json)) is not None:
        faults.append(fault)
    require(faults)


def lifetime_of(request: Message) -> int:
    """Return how long a request is remembered by its id, in milliseconds. Raises InvalidInput."""
    if not request.HasField("remember_for"):
        return REMEMBERED_MS
    lifetime_s = seconds_of(request, "remember_for")
    if not 1 <= lifetime_s <= REMEMBERED_MS / 1000:
        raise InvalidInput([Violation("remember_for", f"must be from 1 s to 24 h, is {lifetime_s:g} s")])
    return int(lifetime_s * 1000)


def wait_of(request: Message) -> float:
    """Return how long to wait, in seconds. Raises InvalidInput."""
    wait_s = seconds_of(request, "wait")
    if not 0 <= wait_s <= LONGEST_WAIT_S:
        raise InvalidInput([Violation("wait", f"must be from 0 s to 1 h, is {wait_s:g} s")])
    return wait_s


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
            message.cycle.ClearField("inputs_json")
            message.cycle.ClearField("result_json")


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
    return around + sum(_VALUE_FRAME + _bytes_of(handle) + _bytes_of(value) for handle, value in values)


def _bytes_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _item_faults(path: str, flow_id: str, inputs_json: str) -> list[Violation]:
    faults = [check_identifier(f"{path}flow_id", flow_id)]
    if inputs_json:
        faults.append(_inputs_fault(f"{path}inputs_json", inputs_json))
    return [fault for fault in faults if fault is not None]


def _inputs_fault(path: str, inputs_json: str) -> Violation | None:
    size = _bytes_of(inputs_json)
    if size > LARGEST_INPUTS:
        return Violation(path, f"{size} bytes; at most {LARGEST_INPUTS} (1 MiB)")
    try:
        _json_object(inputs_json)
        check_depth(inputs_json)
    except msgspec.ValidationError:
        return Violation(path, "must be a JSON object of values by handle or parameter name")
    except (msgspec.DecodeError, RecursionError) as error:
        return Violation(path, f"not JSON: {error}")
    return None


def _payload(flow_id: str, inputs_json: str) -> str:
    return hashlib.sha256(f"{flow_id}\n{inputs_json}".encode()).hexdigest()[:32]
