"""The access service as the authority, over gRPC."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import structlog

from tradewind.api.access.v1 import access_service_pb2 as pb2
from tradewind.api.access.v1.access_service_pb2_grpc import AccessServiceStub
from tradewind.server.access.authority import Changed, Reservation
from tradewind.server.access.identity import Identity
from tradewind.server.access.refusals import refusal_for
from tradewind.server.access.role_messages import role_of
from tradewind.server.backoff import Backoff
from tradewind.server.ending import end_tasks
from tradewind.server.faults import Unavailable
from tradewind.server.incidents import IncidentLog
from tradewind.server.rates import Rate
from tradewind.server.redis import outages

_CALL_S = 2.0
_HEDGE_AFTER_S = 0.3
_HEDGING_S = 10.0
"""How long every question goes out twice, after one was not answered."""
_BACKOFF_S = (0.05, 1.0)

_log = structlog.get_logger(__name__)


class RemoteAuthority:
    """Asks the access service; implements Authority. Needs a channel with a server's token; `close` closes it."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._stub = AccessServiceStub(channel)
        self._hedging_until = 0.0
        self._outages = IncidentLog(_log, "access_unavailable", "access_available_again")

    async def authorize(self, digest: str) -> Identity:
        with self._outage_as_fault():
            answer = await self._first_answer(pb2.AuthorizeRequest(digest=digest))
        if answer.refusal:
            raise refusal_for(answer.refusal)
        return Identity(answer.user_id, role_of(answer.role), answer.session_id, digest)

    async def admit(self, user_id: str, endpoint: str, rate: Rate, calls: int) -> float:
        request = pb2.AdmitCallRequest(user_id=user_id, endpoint=endpoint, limit=str(rate), calls=calls)
        with self._outage_as_fault():
            answer = await self._stub.AdmitCall(request, timeout=_CALL_S)
        return answer.retry_after.ToMilliseconds() / 1000

    async def reserve(
        self, user_id: str, endpoint: str, quota: int, calls: int, rate: Rate | None = None
    ) -> Reservation:
        limit = "" if rate is None else str(rate)
        request = pb2.ReserveCallsRequest(user_id=user_id, endpoint=endpoint, quota=quota, calls=calls, limit=limit)
        with self._outage_as_fault():
            answer = await self._stub.ReserveCalls(request, timeout=_CALL_S)
        wait_s = answer.retry_after.ToMilliseconds() / 1000
        return Reservation(answer.date, answer.time_zone, wait_s, answer.rate_limited)

    async def refund(self, user_id: str, endpoint: str, date: str, calls: int) -> None:
        request = pb2.RefundCallsRequest(user_id=user_id, endpoint=endpoint, date=date, calls=calls)
        with self._outage_as_fault():
            await self._stub.RefundCalls(request, timeout=_CALL_S)

    async def close(self) -> None:
        await self._channel.close()

    async def _first_answer(self, request: pb2.AuthorizeRequest) -> pb2.AuthorizeResponse:
        """Return the first good answer; a replica that hangs delays the caller only until it is suspected.

        gRPC needs 8 s to find out, and sends every other call there until then. Of two calls that start together, one
        goes to another replica.
        """
        loop = asyncio.get_running_loop()
        calls_in_flight: set[asyncio.Task[pb2.AuthorizeResponse]] = set()

        async def ask() -> pb2.AuthorizeResponse:
            return await self._stub.Authorize(request, timeout=_CALL_S)

        try:
            if loop.time() >= self._hedging_until:
                calls_in_flight.add(loop.create_task(ask()))
                done, _ = await asyncio.wait(calls_in_flight, timeout=_HEDGE_AFTER_S)
                if done:
                    return done.pop().result()
                self._hedging_until = loop.time() + _HEDGING_S
            calls_in_flight |= {loop.create_task(ask()), loop.create_task(ask())}
            waiting = calls_in_flight
            while True:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                good = [each for each in done if each.exception() is None]
                if good or not waiting:
                    return (good or list(done))[0].result()
        finally:
            await end_tasks(calls_in_flight)

    @contextmanager
    def _outage_as_fault(self) -> Iterator[None]:
        try:
            yield
        except grpc.aio.AioRpcError as error:
            self._outages.note(error.code().name, details=error.details())
            why = f"answer: {error.details()}" if outages.is_outage(error.details()) else "be reached"
            raise Unavailable("PEER_UNAVAILABLE", f"the access service cannot {why}") from error

    async def watch(self, changed: Changed) -> None:
        backoff = Backoff(*_BACKOFF_S)
        while True:
            try:
                async for answer in self._stub.WatchChanges(pb2.WatchChangesRequest()):
                    backoff.reset()
                    if answer.all or not answer.user_ids:
                        changed(None)
                    for user_id in answer.user_ids:
                        changed(user_id)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    _log.warning("watching_changes_failed", code=error.code().name, details=error.details())
            await backoff.pause()
