"""Turns what gRPC reports into the client's exceptions, by status code and `google.rpc.Status` details."""

from collections.abc import Callable
from dataclasses import dataclass, field

import grpc
from google.rpc import error_details_pb2, status_pb2

from tradewind.client.errors import (
    Aborted,
    Conflict,
    Exhausted,
    InvalidInput,
    NotFound,
    PermissionDenied,
    ServerFault,
    TimedOut,
    TradewindError,
    Unauthenticated,
    Unavailable,
    Unreachable,
    Violation,
    WrongStatus,
)
from tradewind.server.statuses import code_of, status_from, status_in
from tradewind.tls import connection_explanation

_TOO_LARGE = "SERVER: Received message larger than max"
_STREAM_ENDED = "Internal error from Core"
"""What gRPC itself reports instead of the answer when the client writes to a stream that the server has just ended."""
_NO_ACCESS = (
    "this stack has no access service, so calls need no token; start one with tradewind up --auth, or set "
    "TRADEWIND_ACCESS_ADDRESS to its address"
)


@dataclass(slots=True)
class _Details:
    """What the details of a status say."""

    reason: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    subject: str = ""
    retry_after: float = 0.0


def error_from(error: grpc.aio.AioRpcError, address: str, method: str) -> TradewindError:
    """Return the error for a failed call of `method` at `address`."""
    message = error.details() or error.code().name.lower().replace("_", " ")
    details = _details(status_in(error))
    if error.code() is grpc.StatusCode.UNAVAILABLE and not details.reason:
        return Unreachable(address, _cause(message))
    if not details.reason and (error.code() is grpc.StatusCode.CANCELLED or error.details() == _STREAM_ENDED):
        # This is how a stopping server ends calls that it has not begun.
        return Unavailable(f"{address} ended {method} without an answer")
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and not details.reason:
        message = f"{address} did not answer {method} in time"
    if error.code() is grpc.StatusCode.UNIMPLEMENTED and not details.reason:
        message = f"{address} does not serve {method}: is it another program, or another version of Tradewind?"
    if not details.reason and message.startswith(_TOO_LARGE):
        message = f"the request to {method} is too large; store large values elsewhere and pass a reference ({message})"
    make = _ERRORS.get(error.code(), _server_fault)
    return make(message, details)


def error_of_reason(reason: str, message: str) -> TradewindError:
    """Return the error for a reason that came as data, as in the items of a bulk call."""
    make = _REASONS.get(reason)
    if make is None:
        make = _not_found if reason.endswith("_NOT_FOUND") else _server_fault
    return make(message, _Details(reason=reason))


def error_of_status(serialized: bytes) -> TradewindError:
    """Return the error for a `google.rpc.Status` that came as data."""
    status = status_from(serialized)
    make = _ERRORS.get(code_of(status), _server_fault)
    return make(status.message, _details(status))


def _details(status: status_pb2.Status) -> _Details:
    found = _Details()
    for packed in status.details:
        info = error_details_pb2.ErrorInfo()
        request = error_details_pb2.BadRequest()
        precondition = error_details_pb2.PreconditionFailure()
        retry = error_details_pb2.RetryInfo()
        if packed.Unpack(info):
            found.reason = info.reason
            found.metadata = dict(info.metadata)
        elif packed.Unpack(request):
            found.violations += [Violation(each.field, each.description) for each in request.field_violations]
        elif packed.Unpack(precondition):
            found.subject = next((each.subject for each in precondition.violations), "")
        elif packed.Unpack(retry):
            found.retry_after = retry.retry_delay.ToMilliseconds() / 1000
    return found


def _cause(message: str) -> str:
    """Return the last error in gRPC's list of attempts, without the addresses before it."""
    if (explanation := connection_explanation(message)) is not None:
        return explanation
    cause = message.rpartition("last error: ")[2].removeprefix("UNKNOWN: ").removeprefix("UNAVAILABLE: ")
    return cause.rpartition(": ")[2].partition(" (")[0] if "onnection refused" in cause else cause


_Make = Callable[[str, _Details], TradewindError]


def _plain(kind: type[TradewindError]) -> _Make:
    return lambda message, details: kind(message, reason=details.reason, metadata=details.metadata)


_not_found, _conflict, _aborted = _plain(NotFound), _plain(Conflict), _plain(Aborted)
_unauthenticated, _permission_denied = _plain(Unauthenticated), _plain(PermissionDenied)
_timed_out, _server_fault = _plain(TimedOut), _plain(ServerFault)


def _invalid_input(message: str, details: _Details) -> TradewindError:
    return InvalidInput(message, details.violations, reason=details.reason, metadata=details.metadata)


def _wrong_status(message: str, details: _Details) -> TradewindError:
    return WrongStatus(message, subject=details.subject, reason=details.reason, metadata=details.metadata)


def _exhausted(message: str, details: _Details) -> TradewindError:
    return Exhausted(
        message, retry_after=details.retry_after, reason=details.reason or "TOO_LARGE", metadata=details.metadata
    )


def _unimplemented(message: str, details: _Details) -> TradewindError:
    service = message.partition("tradewind.api.")[2].partition(".")[0]
    if details.reason == "METHOD_UNKNOWN" and service == "access":
        message = _NO_ACCESS
    elif details.reason == "METHOD_UNKNOWN" and service:
        message = (
            f"{message}\nthis address serves no {service.replace('_', ' ')}, or an older release of it: "
            f"set TRADEWIND_{service.upper()}_ADDRESS to its address, and give no address for all servers"
        )
    return _server_fault(message, details)


def _unavailable(message: str, details: _Details) -> TradewindError:
    return Unavailable(message, retry_after=details.retry_after, reason=details.reason, metadata=details.metadata)


_ERRORS: dict[grpc.StatusCode, _Make] = {
    grpc.StatusCode.INVALID_ARGUMENT: _invalid_input,
    grpc.StatusCode.OUT_OF_RANGE: _invalid_input,
    grpc.StatusCode.NOT_FOUND: _not_found,
    grpc.StatusCode.ALREADY_EXISTS: _conflict,
    grpc.StatusCode.ABORTED: _aborted,
    grpc.StatusCode.FAILED_PRECONDITION: _wrong_status,
    grpc.StatusCode.UNAUTHENTICATED: _unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: _permission_denied,
    grpc.StatusCode.RESOURCE_EXHAUSTED: _exhausted,
    grpc.StatusCode.UNAVAILABLE: _unavailable,
    grpc.StatusCode.UNIMPLEMENTED: _unimplemented,
    grpc.StatusCode.DEADLINE_EXCEEDED: _timed_out,
    grpc.StatusCode.CANCELLED: _timed_out,
}

_REASONS: dict[str, _Make] = {
    "INVALID_INPUT": _invalid_input,
    "WRONG_STATUS": _wrong_status,
    "FLOW_DELETING": _wrong_status,
    "RESULTS_EXPIRED": _wrong_status,
    "CYCLE_RUNNING": _wrong_status,
    "NOT_LATEST_RUN": _wrong_status,
    "NOTHING_TO_RERUN": _wrong_status,
    "CYCLE_ENDED": _wrong_status,
    "RUN_CONFLICT": _conflict,
    "REQUEST_ID_REUSED": _conflict,
    "VERSION_CONFLICT": _aborted,
    "OVERLAP_SKIPPED": _aborted,
    "QUEUE_FULL": _exhausted,
    "TOO_LARGE": _exhausted,
    "STORE_UNAVAILABLE": _unavailable,
    "PEER_UNAVAILABLE": _unavailable,
    "DRAINING": _unavailable,
    "CALL_ENDED": _timed_out,
    "NOT_OWNER": _permission_denied,
}
