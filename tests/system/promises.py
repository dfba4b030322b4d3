"""The reasons with which calls are refused, and those that the contract names for each method."""

import re
from collections.abc import Iterable
from functools import cache

from google.protobuf.descriptor import MethodDescriptor
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status

from tests.house.project import ROOT
from tradewind.api.errors.v1.error_reason_pb2 import ErrorReason
from tradewind.server.statuses import STATUS_KEY, UNDECODABLE

_METHOD = re.compile(r"((?:  //.*\n)+)  rpc (\w+)\(")
_OTHER_METHOD = re.compile(r"\b(?:as|those of) ([A-Z]\w+)\b")
_REASON = re.compile(r"\b[A-Z]+(?:_[A-Z]+)+\b|\bDRAINING\b|\bINTERNAL\b")


def status_in(metadata: Iterable[tuple[str, str | bytes]] | None) -> Status:
    """Return the status in the trailing metadata of a refusal, an empty one when gRPC itself refused it."""
    for key, value in metadata or ():
        if key == STATUS_KEY and isinstance(value, bytes):
            return Status.FromString(value)
    return Status()


def reason_of(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """Return the reason in the trailing metadata of a refusal, "" when gRPC itself refused it."""
    return reason_in(status_in(metadata))


def reason_in(status: Status) -> str:
    """Return the reason in a status, "" when there is none."""
    info = ErrorInfo()
    return next((info.reason for detail in status.details if detail.Unpack(info)), "")


def paths_in(status: Status) -> tuple[str, ...]:
    """Return the paths of the violations in a status."""
    bad = BadRequest()
    return tuple(each.field for detail in status.details if detail.Unpack(bad) for each in bad.field_violations)


def is_promised(method: MethodDescriptor, reason: str, details: str) -> bool:
    """Say whether the contract tells that a call of this method may be refused with this reason."""
    return reason in _of_any_call() or details == UNDECODABLE or reason in promised_reasons(method)


def promised_reasons(method: MethodDescriptor) -> frozenset[str]:
    """Return the reasons that the comment of a method names after `Errors:`, and those of methods that it refers to."""
    comments = _comments(method.containing_service.file.name)
    found: set[str] = set()
    left = [method.name]
    for name in left:
        found.update(_REASON.findall(comments[name]))
        left += [other for other in _OTHER_METHOD.findall(comments[name]) if other in comments and other not in left]
    return frozenset(found)


@cache
def _of_any_call() -> frozenset[str]:
    """Return the reasons that any call may have, according to the comment on ErrorReason."""
    text = (ROOT / "protos" / ErrorReason.DESCRIPTOR.file.name).read_text(encoding="utf-8")
    paragraph = text.partition("Besides these, any call may be refused")[2]
    return frozenset(_REASON.findall(paragraph.partition("enum ErrorReason")[0])) - {"INVALID_INPUT"}


@cache
def _comments(proto: str) -> dict[str, str]:
    """Return what follows `Errors:` in the comments of the methods in a file of the contract."""
    text = (ROOT / "protos" / proto).read_text(encoding="utf-8")
    return {
        name: " ".join(line.strip(" /") for line in comment.splitlines()).partition("Errors:")[2]
        for comment, name in _METHOD.findall(text)
    }
