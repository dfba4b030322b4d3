"""Calls that are expected to be refused."""

from collections.abc import Awaitable
from dataclasses import dataclass, field

import grpc
import pytest
from google.rpc import error_details_pb2

from tradewind.server.statuses import status_in


@dataclass
class Refusal:
    """What came with a refusal."""

    message: str
    metadata: dict[str, str] = field(default_factory=dict)
    violations: list[tuple[str, str]] = field(default_factory=list)


async def refused(call: Awaitable[object], code: grpc.StatusCode, reason: str) -> Refusal:
    """Await a call that must be refused with this code and reason; return what else came with the refusal."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    error = caught.value
    assert error.code() is code, error.details()
    found = Refusal(error.details() or "")
    reasons = []
    for detail in status_in(error).details:
        info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        if detail.Unpack(info):
            reasons.append(info.reason)
            found.metadata = dict(info.metadata)
        elif detail.Unpack(bad):
            found.violations = [(each.field, each.description) for each in bad.field_violations]
    assert reasons == [reason]
    return found
