"""What a called worker answers when it cannot serve a call."""

import logging
import secrets

from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status
from grpc import StatusCode

from tradewind.server.interception import MethodUnknown
from tradewind.server.statuses import UNDECODABLE, StatusAnswers, status_with

logger = logging.getLogger("tradewind.worker")


class CallAnswers(StatusAnswers):
    """Refuses invalid calls with a reason; logs internal errors, whose details callers never see."""

    def status_of(self, error: Exception, method: str) -> Status:
        """Return the status that a caller of `method` gets for `error`."""
        if isinstance(error, MethodUnknown):
            return status_with(StatusCode.UNIMPLEMENTED, "METHOD_UNKNOWN", str(error))
        if isinstance(error, DecodeError):
            return status_with(StatusCode.INVALID_ARGUMENT, "INVALID_INPUT", UNDECODABLE)
        number = secrets.token_hex(8)
        logger.exception("a call of %s failed, correlation id %s", method, number)
        message = f"internal error; see the worker's log for correlation id {number}"
        return status_with(StatusCode.INTERNAL, "INTERNAL", message)
