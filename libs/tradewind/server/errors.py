"""Which exception becomes which gRPC status, with which details."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import structlog
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2 as details_pb2
from google.rpc.status_pb2 import Status

from tradewind.server import faults
from tradewind.server.incidents import IncidentLog
from tradewind.server.interception import MethodUnknown
from tradewind.server.redis import outages
from tradewind.server.statuses import UNDECODABLE, StatusAnswers, status_with

_log = structlog.get_logger(__name__)

DetailsBuilder = Callable[[Any], Sequence[Message]]


def _no_details(_error: Exception) -> Sequence[Message]:
    return ()


@dataclass(frozen=True, slots=True)
class ErrorRule:
    """How one exception type is reported to callers.

    `reason` is a name in `tradewind.api.errors.v1.ErrorReason` without its prefix; None takes the exception's own.
    `message` replaces an exception text that is not meant for callers. `details` builds further detail messages.
    """

    code: grpc.StatusCode
    reason: str | None = None
    details: DetailsBuilder = _no_details
    message: str | None = None


class ErrorTable:
    """Rules by exception type; the nearest class of an exception decides. Holds the shared rules and `rules`."""

    def __init__(self, rules: Mapping[type[Exception], ErrorRule] | None = None) -> None:
        self._rules: dict[type[Exception], ErrorRule] = {**_SHARED_RULES, **(rules or {})}

    def merged(self, *others: "ErrorTable") -> "ErrorTable":
        """Return a table with the rules of all of them; later ones win where they differ."""
        table = ErrorTable(self._rules)
        for other in others:
            table._rules |= other._rules
        return table

    def status_of(self, error: Exception) -> Status | None:
        """Return the status with its details for `error`, or None when no rule knows it."""
        rule = next((self._rules[kind] for kind in type(error).__mro__ if kind in self._rules), None)
        if rule is None:
            return None
        metadata = dict(getattr(error, "metadata", None) or {})
        reason = rule.reason or str(getattr(error, "reason", "INTERNAL"))
        message = rule.message or str(error) or reason.replace("_", " ").lower()
        return status_with(rule.code, reason, message, metadata, rule.details(error))


class ErrorAnswers(StatusAnswers):
    """Turns handlers' errors into statuses with details; an error without a rule is INTERNAL with a correlation id."""

    def __init__(self, table: ErrorTable) -> None:
        self._table = table
        self._store_outages = IncidentLog(_log, "calls_refused", "calls_refused_no_more")

    def status_of(self, error: Exception, method: str) -> Status:
        """Return the status that a caller of `method` gets for `error`; errors without a rule are logged in full."""
        status = self._table.status_of(error)
        if status is None:
            correlation_id = secrets.token_hex(8)
            _log.exception("call_failed", method=method, correlation_id=correlation_id)
            message = f"internal error; see the server's log for correlation id {correlation_id}"
            return status_with(grpc.StatusCode.INTERNAL, "INTERNAL", message, {"correlation_id": correlation_id})
        # The caller's message leaves out what operators need to know, such as which host is away.
        if outages.is_outage(status.message):
            self._store_outages.note(status.message, method=method, error=f"{type(error).__name__}: {error}")
        elif status.message != str(error):
            _log.warning("call_refused", method=method, told=status.message, error=f"{type(error).__name__}: {error}")
        return status


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


def _retry_later(error: faults.Temporary) -> Sequence[Message]:
    return [_retry_info(error.retry_after_s)]


def _store_retry(_error: Exception) -> Sequence[Message]:
    return [_retry_info(outages.RETRY_S)]


_SHARED_RULES: dict[type[Exception], ErrorRule] = {
    faults.InvalidInput: ErrorRule(grpc.StatusCode.INVALID_ARGUMENT, details=_bad_request),
    faults.NotFound: ErrorRule(grpc.StatusCode.NOT_FOUND),
    faults.Conflict: ErrorRule(grpc.StatusCode.ALREADY_EXISTS),
    faults.Aborted: ErrorRule(grpc.StatusCode.ABORTED),
    faults.FailedPrecondition: ErrorRule(grpc.StatusCode.FAILED_PRECONDITION, details=_precondition),
    faults.Unauthenticated: ErrorRule(grpc.StatusCode.UNAUTHENTICATED),
    faults.PermissionDenied: ErrorRule(grpc.StatusCode.PERMISSION_DENIED),
    faults.Unreadable: ErrorRule(grpc.StatusCode.DATA_LOSS),
    faults.Exhausted: ErrorRule(grpc.StatusCode.RESOURCE_EXHAUSTED, details=_retry_later),
    faults.Unavailable: ErrorRule(grpc.StatusCode.UNAVAILABLE, details=_retry_later),
    MethodUnknown: ErrorRule(grpc.StatusCode.UNIMPLEMENTED, "METHOD_UNKNOWN"),
    DecodeError: ErrorRule(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT", message=UNDECODABLE),
    **{
        kind: ErrorRule(grpc.StatusCode.UNAVAILABLE, outages.REASON, _store_retry, message)
        for kind, message in outages.MESSAGES.items()
    },
}
