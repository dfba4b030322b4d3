"""What a worker that is called answers when a call cannot be served."""

import logging
import secrets
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from tradewind.server.interception import Behavior, Context, MethodUnknown

logger = logging.getLogger("tradewind.worker")


class CallAnswers:
    """Surrounds every call: what makes no sense is refused with a reason, and what fails is logged, never told."""

    def around(self, method: str, behavior: Behavior) -> Behavior:
        """Answer the errors of the calls of one method."""

        async def answered(request: Any, context: Context) -> Any:
            try:
                return await behavior(request, context)
            except grpc.aio.AbortError:
                raise
            except MethodUnknown as error:
                await abort(context, code_pb2.UNIMPLEMENTED, "METHOD_UNKNOWN", str(error))
            except DecodeError:
                message = "the request is no valid message of this method"
                await abort(context, code_pb2.INVALID_ARGUMENT, "INVALID_INPUT", message)
            except Exception:
                number = secrets.token_hex(8)
                logger.exception("a call of %s failed, correlation id %s", method, number)
                message = f"internal error; the worker's log has more under correlation id {number}"
                await abort(context, code_pb2.INTERNAL, "INTERNAL", message)

        return answered


async def abort(context: Context, code: int, reason: str, message: str) -> None:
    """End a call with a status and its reason."""
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(reason=reason, domain="tradewind"))
    status = rpc_status.to_status(status_pb2.Status(code=code, message=message, details=[detail]))
    await context.abort(status.code, message, status.trailing_metadata)
