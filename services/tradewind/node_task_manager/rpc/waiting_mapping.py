"""Maps between Protobuf and the domain: waits and signals."""

from collections.abc import Iterator

import msgspec

from tradewind.api.node_task_manager.v1 import component_pb2, node_task_pb2, waiting_pb2, work_pb2
from tradewind.node_task_manager.domain.built_in_waits import wait_of
from tradewind.node_task_manager.domain.node_task import TaskError
from tradewind.node_task_manager.domain.waiting import MAX_FORM_BYTES, MAX_PAYLOAD_BYTES, Resumption, Wait
from tradewind.node_task_manager.rpc.stop_mapping import MAX_BY
from tradewind.node_task_manager.rpc.times import is_duration, timestamp
from tradewind.node_task_manager.use_cases.signal_node import SignalRequest
from tradewind.server.all_faults import require
from tradewind.server.built_in.forms import form_faults
from tradewind.server.faults import Violation
from tradewind.server.identifiers import check_identifier, request_id_faults
from tradewind.server.json_depth import check_depth
from tradewind.server.timestamps import NOT_AN_INSTANT, instant_ms, milliseconds


def wait_order(order: work_pb2.WaitOrder) -> Wait | TaskError:
    """Parse what a node wants to wait for, or return the error that it is invalid."""
    faults = list(_order_faults(order))
    title = ""
    if order.form_json and not faults:
        try:
            form = msgspec.json.decode(order.form_json)
            check_depth(order.form_json)
            faults += [f"form{''.join(f'.{key}' for key in keys)}: {message}" for keys, message in form_faults(form)]
            title = "" if faults else form["title"]
        except (msgspec.DecodeError, RecursionError) as error:
            faults.append(f"form: is not JSON: {error}")
    if faults:
        return TaskError("INVALID_OUTPUT", f"the node cannot wait for this: {'; '.join(faults)}"[:4096])
    return Wait(
        signal=order.signal,
        till=max(1, milliseconds(order.until)) if order.HasField("until") else 0,
        after_ms=milliseconds(order.delay) if order.HasField("delay") else -1,
        form=order.form_json,
        title=title,
        completes=order.completes,
    )


def _order_faults(order: work_pb2.WaitOrder) -> Iterator[str]:
    for name in ("signal", "completes"):
        fault = check_identifier(name, getattr(order, name)) if getattr(order, name) else None
        if fault is not None:
            yield f"{name}: {fault.message}"
    timed = order.HasField("until") + order.HasField("delay")
    if not (order.signal or timed):
        yield "a signal or a time is required"
    if timed == 2:
        yield "set until or delay, not both"
    if instant_ms(order.until) < 0:
        yield f"until: {NOT_AN_INSTANT}"
    if not is_duration(order.delay):
        yield "delay: must be 0 to 100 years"
    if order.form_json and not order.signal:
        yield "a form needs a signal, which brings the answer"
    if len(order.form_json.encode()) > MAX_FORM_BYTES:
        yield f"form: must have at most {MAX_FORM_BYTES // 1024} KiB"


def built_in_faults(path: str, node: component_pb2.PlanNode) -> Iterator[Violation]:
    """Yield the fault of the config of a node of a built-in type."""
    try:
        wait_of(node.node_type, node.config_json)
    except ValueError as error:
        yield Violation(f"{path}.config_json", str(error))


def wait(found: Wait | None) -> node_task_pb2.Wait | None:
    """Return what a suspended node task waits for."""
    if found is None:
        return None
    return node_task_pb2.Wait(
        signal=found.signal,
        until=timestamp(found.till),
        form_json=found.form,
        completes=found.completes,
        since=timestamp(found.since),
        flow_id=found.flow_id,
    )


def resumption(resumed: Resumption | None) -> node_task_pb2.Resumption | None:
    """Return what ended a wait."""
    if resumed is None:
        return None
    return node_task_pb2.Resumption(
        signal=resumed.signal, payload_json=resumed.payload, by=resumed.by, at=timestamp(resumed.at)
    )


def signal_request(request: waiting_pb2.SignalNodeRequest) -> SignalRequest:
    """Parse a signal. Raises InvalidInput with every fault."""
    faults = [check_identifier("signal", request.signal)] if request.signal else []
    payload = request.payload_json or "null"
    if len(payload.encode()) > MAX_PAYLOAD_BYTES:
        faults.append(Violation("payload_json", f"must have at most {MAX_PAYLOAD_BYTES // 1024} KiB"))
    else:
        try:
            msgspec.json.decode(payload)
            check_depth(payload)
        except (msgspec.DecodeError, RecursionError) as error:
            faults.append(Violation("payload_json", f"is not JSON: {error}"))
    faults += request_id_faults(request.request_id)
    require(faults)
    by = request.by[:MAX_BY] or request.user_id
    return SignalRequest(request.signal, payload, by, request.request_id, request.only_if_waiting)
