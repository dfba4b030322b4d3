"""Errors with which fake servers answer."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True)
class Refusal:
    """An error to answer with; `details` accompany its ErrorInfo, which is left out when `reason` is empty."""

    code: grpc.StatusCode
    reason: str = ""
    message: str = "refused"
    details: Sequence[Message] = ()
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def trailers(self) -> tuple[tuple[str, bytes]]:
        """The metadata that holds the details."""
        messages = list(self.details)
        if self.reason:
            info = error_details_pb2.ErrorInfo(reason=self.reason, domain="tradewind", metadata=self.metadata)
            messages.insert(0, info)
        status = status_pb2.Status(code=self.code.value[0], message=self.message)
        for message in messages:
            packed = any_pb2.Any()
            packed.Pack(message)
            status.details.append(packed)
        return (("grpc-status-details-bin", status.SerializeToString()),)

    async def abort_call(self, context: Context) -> NoReturn:
        """End the call with this error."""
        await context.abort(self.code, self.message, self.trailers)
        raise AssertionError("aborted")


AWAY = Refusal(grpc.StatusCode.UNAVAILABLE, message="the connection broke")


class RunRefused(Exception):
    """One run of a stream is refused."""

    def __init__(self, status: bytes) -> None:
        super().__init__(status)
        self.status = status


class RunContext:
    """Stands in for the context of one run of a stream, so that this run alone can be refused."""

    def __init__(self, stream: Context) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def abort(self, code: grpc.StatusCode, message: str, metadata: Sequence[tuple[str, bytes]]) -> None:
        raise RunRefused(metadata[0][1])
