"""What all calls to other services have in common."""

import grpc

from tradewind.scheduler.ports.peers import PeerRefused, PeerUnavailable
from tradewind.tls import connection_explanation

_REFUSALS = frozenset(
    {
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.OUT_OF_RANGE,
    }
)
_AWAY = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED})


class calling:  # noqa: N801  Named like contextlib's context managers, which cost three times as much.
    """Turn a failed call into PeerRefused when asking again will not help, into PeerUnavailable otherwise.

    A call that the peer does not implement may work later: services are upgraded in any order.
    """

    def __init__(self, peer: str) -> None:
        self._peer = peer

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if not isinstance(error, grpc.aio.AioRpcError):
            return
        raise failure(self._peer, error.code(), error.details() or "") from error


def failure(peer: str, code: grpc.StatusCode, details: str) -> PeerRefused | PeerUnavailable:
    """Return the exception for a call that ended with a status."""
    return PeerRefused(details) if code in _REFUSALS else unavailable(peer, code, details)


def unavailable(peer: str, code: grpc.StatusCode, details: str) -> PeerUnavailable:
    """Return PeerUnavailable for a call to a peer that ended with this status."""
    answered = code not in _AWAY
    return PeerUnavailable(peer, f"{code.name}: {connection_explanation(details) or details}", answered=answered)
