"""The answer to a caller whose call went wrong: a `google.rpc.Status` with its details."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2 as details_pb2
from google.rpc.status_pb2 import Status

from tradewind.server.interception import Behavior, Context

DOMAIN = "tradewind"
STATUS_KEY = "grpc-status-details-bin"
_MAX_BYTES = 7 * 1024 + 512
"""The most that an error's message and details may take: stock clients refuse metadata beyond 8 KiB and see neither.

Clients without gRPC's C core get the details in base64, where three bytes take four.
"""
_MAX_MESSAGE_BYTES = 900
_MAX_NAME_BYTES = 500
"""The most of a path and of a subject: what has a longer name is known by the beginning of it."""
_MAX_VALUE_BYTES = 2700
"""The most of a value in the metadata; the longest one lists 20 nodes."""
UNDECODABLE = "the request is not a valid message for this method"


class StatusAnswers(ABC):
    """Surrounds every call: reports what its handler raises as a status."""

    def around(self, method: str, behavior: Behavior) -> Behavior:
        """Answer the errors of the calls of one method."""

        async def answered(request: Any, context: Context) -> Any:
            try:
                return await behavior(request, context)
            except grpc.aio.AbortError:
                raise
            except Exception as error:
                await abort(context, self.status_of(error, method))

        return answered

    @abstractmethod
    def status_of(self, error: Exception, method: str) -> Status:
        """Return the status that a caller of `method` gets for `error`; called while `error` is being handled."""


async def abort(context: Context, status: Status) -> None:
    """End a call with a status."""
    await context.abort(code_of(status), status.message, ((STATUS_KEY, status.SerializeToString()),))


def code_of(status: Status) -> grpc.StatusCode:
    """Return the code of a status; UNKNOWN if it has no valid one."""
    return next((code for code in grpc.StatusCode if code.value[0] == status.code), grpc.StatusCode.UNKNOWN)


def status_in(error: grpc.aio.AioRpcError) -> Status:
    """Return the status that came with a failed call; an empty one if none did, or one that cannot be read."""
    for key, value in error.trailing_metadata() or ():
        if key == STATUS_KEY and isinstance(value, bytes):
            return status_from(value)
    return Status()


def status_from(serialized: bytes) -> Status:
    """Return a status; an empty one if it cannot be read."""
    try:
        return Status.FromString(serialized)
    except DecodeError:
        return Status()


def reason_of(error: grpc.aio.AioRpcError) -> str:
    """Return the reason that came with a failed call, a name in ErrorReason without its prefix; "" for none."""
    info = details_pb2.ErrorInfo()
    return next((info.reason for detail in status_in(error).details if detail.Unpack(info)), "")


def status_with(
    code: grpc.StatusCode,
    reason: str,
    message: str,
    metadata: Mapping[str, str] | None = None,
    details: Sequence[Message] = (),
) -> Status:
    """Return a status; `reason` is a name in `tradewind.api.errors.v1.ErrorReason` without its prefix."""
    told = {name: _cut(value, _MAX_VALUE_BYTES) for name, value in (metadata or {}).items()}
    info = details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=told)
    message = _cut(message, _MAX_MESSAGE_BYTES)
    status = Status(code=code.value[0], message=message, details=[_packed(info)])
    for detail in details:
        if isinstance(detail, details_pb2.BadRequest):
            # The message is also sent by itself, quoted: each byte that is not ASCII takes three.
            detail = _truncated(detail, (_MAX_BYTES - len(quote(message))) * 3 // 4 - status.ByteSize())
        elif isinstance(detail, details_pb2.PreconditionFailure):
            for broken in detail.violations:
                broken.subject = _cut(broken.subject, _MAX_NAME_BYTES)
                broken.description = _cut(broken.description, _MAX_MESSAGE_BYTES)
        status.details.append(_packed(detail))
    return status


def _cut(text: str, most_bytes: int) -> str:
    """Return the beginning of a text that is too long, up to the end of a character."""
    return text if len(text) * 4 <= most_bytes else text.encode()[:most_bytes].decode(errors="ignore")


def _truncated(bad_request: details_pb2.BadRequest, budget: int) -> details_pb2.BadRequest:
    """Return as many violations as fit into `budget` bytes; the last one says that there are more.

    The message of the status says how many there are. Long texts are cut, so that the first one always fits.
    """
    for violation in bad_request.field_violations:
        violation.field = _cut(violation.field, _MAX_NAME_BYTES)
        violation.description = _cut(violation.description, _MAX_MESSAGE_BYTES)
    if bad_request.ByteSize() + 100 <= budget:
        return bad_request
    kept = details_pb2.BadRequest()
    size = 300
    for violation in bad_request.field_violations:
        size += violation.ByteSize() + 4
        if size > budget:
            break
        kept.field_violations.append(violation)
    kept.field_violations.add(field="", description="and more, too many for one answer: fix these first")
    return kept


def _packed(message: Message) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(message)
    return packed
