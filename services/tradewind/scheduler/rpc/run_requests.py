"""Reads requests to run flows."""

import asyncio
import hashlib
from collections.abc import Iterator, Sequence

import msgspec
from google.protobuf.message import Message

from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.scheduler.domain.flow_record import REMEMBERED_MS, RememberedRequest
from tradewind.scheduler.rpc.times import seconds_of
from tradewind.scheduler.use_cases.begin_cycles import CycleRequest
from tradewind.server.access.identity import request_owner
from tradewind.server.all_faults import every, require
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.identifiers import check_identifier, is_identifier, request_id_faults
from tradewind.server.json_depth import check_depth
from tradewind.server.sizes import size_of

MAX_ITEMS = 10_000
LONGEST_WAIT_S = 3600.0
LARGEST_INPUTS = 1024 * 1024
"""In bytes."""
_AT_ONCE = 500
"""How many items of a bulk are checked before other work has a turn."""

_json_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


async def cycle_requests_of(
    call: pb2.RunFlowsRequest | pb2.RunFlowRequest,
    items: Sequence[pb2.RunFlowItem | pb2.RunFlowRequest],
    traceparent: str,
) -> tuple[Iterator[CycleRequest], float]:
    """Return the cycles that a call requests, and how many seconds to wait; a RunFlowRequest is its own only item.

    The items of a bulk are checked first, and read as the iterator gets to them, while the first cycles are under way.
    Raises InvalidInput with every fault.
    """
    bulk = isinstance(call, pb2.RunFlowsRequest)
    faults = request_id_faults(call.request_id)
    try:
        wait_s, lifetime_ms = every(lambda: wait_of(call), lambda: lifetime_of(call))
    except InvalidInput as error:
        wait_s, lifetime_ms = 0.0, 0
        faults += error.violations
    wanted: list[tuple[str, str]] = []
    for place, item in enumerate(items):
        if place % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
        flow_id, inputs_json = item.flow_id, item.inputs_json
        wanted.append((flow_id, inputs_json))
        if inputs_json or not is_identifier(flow_id):
            faults += _item_faults(f"items[{place}]." if bulk else "", flow_id, inputs_json)
    require(faults)
    return _requests(call, wanted, lifetime_ms, request_owner(), traceparent), wait_s


def _requests(
    call: pb2.RunFlowsRequest | pb2.RunFlowRequest,
    items: Sequence[tuple[str, str]],
    lifetime_ms: int,
    owner: str,
    traceparent: str,
) -> Iterator[CycleRequest]:
    bulk, request_id = isinstance(call, pb2.RunFlowsRequest), call.request_id
    for place, (flow_id, inputs_json) in enumerate(items):
        remembered = None
        if request_id:
            name = f"{request_id}/{place}" if bulk else request_id
            remembered = RememberedRequest(owner, flow_id, name, _payload(flow_id, inputs_json), lifetime_ms)
        yield CycleRequest(flow_id, inputs_json=inputs_json, request=remembered, traceparent=traceparent)


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


def _item_faults(path: str, flow_id: str, inputs_json: str) -> list[Violation]:
    faults = [check_identifier(f"{path}flow_id", flow_id)]
    if inputs_json:
        faults.append(_inputs_fault(f"{path}inputs_json", inputs_json))
    return [fault for fault in faults if fault is not None]


def _inputs_fault(path: str, inputs_json: str) -> Violation | None:
    size = size_of(inputs_json)
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
