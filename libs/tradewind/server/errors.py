"""Which exception becomes which gRPC status, and the answer to callers with `google.rpc.Status` details."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import structlog
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2 as details_pb2
from google.rpc.status_pb2 import Status
from redis import exceptions as redis_errors

from tradewind.server import faults
from tradewind.server.interception import Behavior, Context, MethodUnknown
from tradewind.server.redis import away

DOMAIN = "tradewind"
STATUS_KEY = "grpc-status-details-bin"
MAX_STATUS_BYTES = 7 * 1024
"""How large an error's details may be: stock clients refuse metadata beyond 8 KiB, and then see none of them."""

_log = structlog.get_logger(__name__)

DetailsBuilder = Callable[[Any], Sequence[Message]]


def _no_details(_error: Exception) -> Sequence[Message]:
    return ()


@dataclass(frozen=True, slots=True)
class ErrorRule:
    """How one exception type is told to callers.

    `reason` is a name of `tradewind.api.errors.v1.ErrorReason` without its prefix; None takes the exception's own.
    `message` replaces the exception's text where that is not for callers. `details` builds further detail messages.
    """

    code: grpc.StatusCode
    reason: str | None = None
    details: DetailsBuilder = _no_details
    message: str | None = None


class ErrorTable:
    """Rules by exception type; the nearest class of an exception decides. Holds the shared rules and `rules`."""

    def __init__(self, rules: Mapping[type[Exception], ErrorRule] | None = None) -> None:
        self._rules: dict[type[Exception], ErrorRule] = {**_SHARED_RULES, **(rules or {})}

    def joined(self, other: "ErrorTable") -> "ErrorTable":
        """Return a table with the rules of both; `other` wins where they differ."""
        table = ErrorTable()
        table._rules = {**self._rules, **other._rules}
        return table

    def status_of(self, error: Exception) -> Status | None:
        """Return the status with its details for `error`, or None when no rule knows it."""
        rule = next((self._rules[kind] for kind in type(error).__mro__ if kind in self._rules), None)
        if rule is None:
            return None
        metadata = dict(getattr(error, "metadata", None) or {})
        reason = rule.reason or str(getattr(error, "reason", "INTERNAL"))
        message = rule.message or str(error) or reason.replace("_", " ").lower()
        return _status(rule.code, message, reason, metadata, rule.details(error))


class ErrorAnswers:
    """Turns what handlers raise into statuses with details; what no rule knows into INTERNAL with a correlation id."""

    def __init__(self, table: ErrorTable) -> None:
        self._table = table

    def around(self, method: str, behavior: Behavior) -> Behavior:
        """Answer the errors of the calls of one method."""

        async def answered(request: Any, context: Context) -> Any:
            try:
                return await behavior(request, context)
            except grpc.aio.AbortError:
                raise
            except Exception as error:
                await _abort(context, self.status_of(error, method))

        return answered

    def status_of(self, error: Exception, method: str) -> Status:
        """Return what a caller of `method` is told of `error`; what no rule knows is logged in full."""
        status = self._table.status_of(error)
        if status is None:
            correlation_id = secrets.token_hex(8)
            _log.exception("call_failed", method=method, correlation_id=correlation_id)
            message = f"internal error; the server's log has more under correlation id {correlation_id}"
            return _status(grpc.StatusCode.INTERNAL, message, "INTERNAL", {"correlation_id": correlation_id}, ())
        if status.message != str(error):
            # What callers are told leaves out what people who run this must know, such as which host is away.
            _log.warning("call_refused", method=method, told=status.message, error=f"{type(error).__name__}: {error}")
        return status


async def _abort(context: Context, status: Status) -> None:
    code = next(code for code in grpc.StatusCode if code.value[0] == status.code)
    await context.abort(code, status.message, ((STATUS_KEY, status.SerializeToString()),))


def _status(
    code: grpc.StatusCode, message: str, reason: str, metadata: Mapping[str, str], details: Sequence[Message]
) -> Status:
    info = details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=metadata)
    status = Status(code=code.value[0], message=message[:1000], details=[_packed(info)])
    for detail in details:
        if isinstance(detail, details_pb2.BadRequest):
            detail = _cut(detail, MAX_STATUS_BYTES - status.ByteSize())
        status.details.append(_packed(detail))
    return status


def _cut(bad_request: details_pb2.BadRequest, budget: int) -> details_pb2.BadRequest:
    """Return as many violations as fit into `budget` bytes, the last one saying how many more there are."""
    if bad_request.ByteSize() + 100 <= budget:
        return bad_request
    kept = details_pb2.BadRequest()
    size = 300
    for violation in bad_request.field_violations:
        size += violation.ByteSize() + 4
        if size > budget:
            break
        kept.field_violations.append(violation)
    missing = len(bad_request.field_violations) - len(kept.field_violations)
    kept.field_violations.add(field="", description=f"and {missing} more, too many for one answer: mend these first")
    return kept


def _packed(message: Message) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(message)
    return packed


def _retry_info(seconds: float) -> details_pb2.RetryInfo:
    delay = Duration()
    delay.FromMilliseconds(int(seconds * 1000))
    return details_pb2.RetryInfo(retry_delay=delay)


def _bad_request(error: faults.InvalidInput) -> Sequence[Message]:
    violation = details_pb2.BadRequest.FieldViolation
    return [
        details_pb2.BadRequest(
            field_violations=[violation(field=fault.path, description=fault.message) for fault in error.violations]
        )
    ]


def _precondition(error: faults.FailedPrecondition) -> Sequence[Message]:
    violation = details_pb2.PreconditionFailure.Violation(
        type=error.reason, subject=error.subject, description=error.message
    )
    return [details_pb2.PreconditionFailure(violations=[violation])]


def _retry_later(error: faults.Exhausted | faults.Unavailable) -> Sequence[Message]:
    return [_retry_info(error.retry_after_s)]


def _store_retry(_error: Exception) -> Sequence[Message]:
    return [_retry_info(away.RETRY_S)]


_STORE_AWAY = ErrorRule(grpc.StatusCode.UNAVAILABLE, away.REASON, _store_retry, away.MESSAGE)
_STORE_FULL = ErrorRule(
    grpc.StatusCode.UNAVAILABLE, away.REASON, _store_retry, "the store is out of memory and takes no writes"
)

_SHARED_RULES: dict[type[Exception], ErrorRule] = {
    faults.InvalidInput: ErrorRule(grpc.StatusCode.INVALID_ARGUMENT, details=_bad_request),
    faults.NotFound: ErrorRule(grpc.StatusCode.NOT_FOUND),
    faults.Conflict: ErrorRule(grpc.StatusCode.ALREADY_EXISTS),
    faults.Aborted: ErrorRule(grpc.StatusCode.ABORTED),
    faults.FailedPrecondition: ErrorRule(grpc.StatusCode.FAILED_PRECONDITION, details=_precondition),
    faults.Unauthenticated: ErrorRule(grpc.StatusCode.UNAUTHENTICATED),
    faults.PermissionDenied: ErrorRule(grpc.StatusCode.PERMISSION_DENIED),
    faults.Exhausted: ErrorRule(grpc.StatusCode.RESOURCE_EXHAUSTED, details=_retry_later),
    faults.Unavailable: ErrorRule(grpc.StatusCode.UNAVAILABLE, details=_retry_later),
    MethodUnknown: ErrorRule(grpc.StatusCode.UNIMPLEMENTED, "METHOD_UNKNOWN"),
    DecodeError: ErrorRule(
        grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT", message="the request is no valid message of this method"
    ),
    **dict.fromkeys(away.AWAY, _STORE_AWAY),
    redis_errors.OutOfMemoryError: _STORE_FULL,
}
