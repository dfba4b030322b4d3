"""The log of requests."""

import logging
import time
from typing import Any

import grpc
import structlog

from tradewind.server.incidents import IncidentLog
from tradewind.server.interception import Behavior, Context
from tradewind.server.redis import outages

_log = structlog.get_logger(__name__)
_CALLERS_OWN = frozenset(
    {
        *(grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.ALREADY_EXISTS),
        *(grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.ABORTED, grpc.StatusCode.UNIMPLEMENTED),
    }
)
"""What callers have to see to themselves, and are told."""


class RequestLog:
    """Logs each call when it ends: DEBUG if it succeeded or its client left, else WARNING, or INFO if its caller is to
    blame.

    Calls that are refused because another service is away are summed up in two lines. So are those that are refused
    because the store is away, elsewhere.
    """

    def __init__(self) -> None:
        self._draining = False
        self._refusals = IncidentLog(_log, "calls_refused", "calls_refused_no_more")

    def drain(self) -> None:
        """Treat it as normal from now on that calls are sent elsewhere."""
        self._draining = True

    def around(self, method: str, behavior: Behavior) -> Behavior:
        """Surround the calls of one method."""

        async def logged(request: Any, context: Context) -> Any:
            begun = time.perf_counter()
            try:
                response = await behavior(request, context)
            except grpc.aio.AbortError:
                details, refused = context.details(), context.code() is grpc.StatusCode.UNAVAILABLE
                if refused and not self._draining and not outages.is_outage(details):
                    self._refusals.note(details, method=method)
                write = _log.debug if refused else _log.info if context.code() in _CALLERS_OWN else _log.warning
                write("call", **_facts(method, context, begun), details=details)
                raise
            except BaseException as error:
                # Only a cancelled call gets here: all other errors became a status further in.
                _log.debug("call_ended", method=method, peer=context.peer(), error=type(error).__name__)
                raise
            if _log.is_enabled_for(logging.DEBUG):
                _log.debug("call", **_facts(method, context, begun))
            return response

        return logged


def _facts(method: str, context: Context, begun: float) -> dict[str, Any]:
    return {
        "method": method,
        "code": (context.code() or grpc.StatusCode.OK).name,
        "ms": round((time.perf_counter() - begun) * 1000, 2),
        "peer": context.peer(),
    }
