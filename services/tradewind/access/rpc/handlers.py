"""AccessService: parses the request, calls the use case, builds the response."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from google.protobuf.duration_pb2 import Duration

from tradewind.access.domain.day import is_date
from tradewind.access.ports import Refusal, Stores
from tradewind.access.rpc import mapping
from tradewind.access.use_cases import users
from tradewind.access.use_cases.daily_quotas import DailyQuotas
from tradewind.access.use_cases.listeners import Listeners
from tradewind.access.use_cases.local_authority import REFUSAL_REASONS, LocalAuthority
from tradewind.access.use_cases.open_sessions import OpenSessions, revoke
from tradewind.api.access.v1 import access_service_pb2 as pb2
from tradewind.api.access.v1 import access_service_pb2_grpc as pb2_grpc
from tradewind.api.access.v1 import doctor_pb2
from tradewind.server.access.identity import Identity, current_identity, not_owner
from tradewind.server.access.role_messages import ROLE_MESSAGES, role_of
from tradewind.server.access.roles import Role
from tradewind.server.all_faults import every, require
from tradewind.server.doctor import Doctor
from tradewind.server.doctor_answers import doctor_answers
from tradewind.server.faults import InvalidInput, NotFound, Violation
from tradewind.server.identifiers import check_identifier, require_identifiers
from tradewind.server.interception import Context
from tradewind.server.paging import page_of, page_token
from tradewind.server.partitions import PARTITIONS
from tradewind.server.rates import MAX_COUNT, Rate
from tradewind.server.streams import OpenStreams

_Partition = Annotated[int, msgspec.Meta(ge=0, lt=PARTITIONS)]

_MAX_CHANGED_USERS = 10_000
"""How many changed users a stream remembers at most before it reports that all may have changed."""


class AccessHandlers(pb2_grpc.AccessServiceServicer):
    """The gRPC side of the access service, behind a gate; an outer layer turns faults into statuses."""

    def __init__(
        self,
        stores: Stores,
        open_sessions: OpenSessions,
        authority: LocalAuthority,
        quotas: DailyQuotas,
        listeners: Listeners,
        streams: OpenStreams,
        doctor: Doctor,
    ) -> None:
        self._stores = stores
        self._open = open_sessions
        self._authority = authority
        self._quotas = quotas
        self._listeners = listeners
        self._streams = streams
        self._doctor = doctor

    async def CreateSession(self, request: pb2.CreateSessionRequest, context: Context) -> pb2.CreateSessionResponse:
        token, session = await self._open.login(_target_user(request.user_id), request.label)
        return pb2.CreateSessionResponse(token=token, session=mapping.session(session))

    async def CreateToken(self, request: pb2.CreateTokenRequest, context: Context) -> pb2.CreateTokenResponse:
        user_id, faults, caller = _target_user(request.user_id), list[Violation](), _caller()
        role = _role("role", request.role, faults)
        if role is not None and caller.role.rank < Role.ADMIN.rank and role is not caller.role:
            raise not_owner(caller)
        token, session = await self._open.token(user_id, request.label, _milliseconds(request.lifetime), role, faults)
        return pb2.CreateTokenResponse(token=token, session=mapping.session(session))

    async def RefreshSession(self, request: pb2.RefreshSessionRequest, context: Context) -> pb2.RefreshSessionResponse:
        caller = _caller()
        if not caller.digest:
            raise NotFound("session", caller.user_id)
        token, session = await self._open.refresh(caller.digest, caller.user_id)
        return pb2.RefreshSessionResponse(token=token, session=mapping.session(session))

    async def ListSessions(self, request: pb2.ListSessionsRequest, context: Context) -> pb2.ListSessionsResponse:
        user_id = request.user_id or _caller().user_id
        require_identifiers(user_id=user_id)
        sessions = await self._stores.sessions.list(user_id)
        return pb2.ListSessionsResponse(sessions=[mapping.session(each) for each in sessions])

    async def RevokeSession(self, request: pb2.RevokeSessionRequest, context: Context) -> pb2.RevokeSessionResponse:
        await revoke(self._stores.sessions, _target_user(request.user_id), request.session_id)
        return pb2.RevokeSessionResponse()

    async def RevokeSessions(self, request: pb2.RevokeSessionsRequest, context: Context) -> pb2.RevokeSessionsResponse:
        user_id = _target_user(request.user_id)
        require_identifiers(user_id=user_id)
        keep = _caller().session_id if request.keep_current else ""
        return pb2.RevokeSessionsResponse(count=await self._stores.sessions.close_all(user_id, keep))

    async def WhoAmI(self, request: pb2.WhoAmIRequest, context: Context) -> pb2.WhoAmIResponse:
        caller = _caller()
        return pb2.WhoAmIResponse(user_id=caller.user_id, role=ROLE_MESSAGES[caller.role], session_id=caller.session_id)

    async def SetUser(self, request: pb2.SetUserRequest, context: Context) -> pb2.SetUserResponse:
        faults: list[Violation] = []
        role = _role("user.role", request.user.role, faults)
        user = await users.set_user(self._stores.users, request.user.user_id, role, request.user.time_zone, faults)
        return pb2.SetUserResponse(user=mapping.user(user))

    async def GetUser(self, request: pb2.GetUserRequest, context: Context) -> pb2.GetUserResponse:
        user = await users.get_user(self._stores.users, request.user_id or _caller().user_id)
        return pb2.GetUserResponse(user=mapping.user(user))

    async def ListUsers(self, request: pb2.ListUsersRequest, context: Context) -> pb2.ListUsersResponse:
        after, size = page_of(request, tuple[_Partition, str])
        found, next_page = await users.list_users(self._stores.users, after, size)
        return pb2.ListUsersResponse(
            users=[mapping.user(user) for user in found], next_page_token=page_token(next_page)
        )

    async def ListQuotas(self, request: pb2.ListQuotasRequest, context: Context) -> pb2.ListQuotasResponse:
        found = await self._quotas.used(request.user_id or _caller().user_id)
        return pb2.ListQuotasResponse(quotas=mapping.quotas(*found))

    async def Authorize(self, request: pb2.AuthorizeRequest, context: Context) -> pb2.AuthorizeResponse:
        found = await self._authority.find(request.digest)
        if isinstance(found, Refusal):
            return pb2.AuthorizeResponse(refusal=REFUSAL_REASONS[found])
        return pb2.AuthorizeResponse(user_id=found.user_id, role=ROLE_MESSAGES[found.role], session_id=found.session_id)

    async def AdmitCall(self, request: pb2.AdmitCallRequest, context: Context) -> pb2.AdmitCallResponse:
        calls, rate = every(lambda: _calls(request), lambda: _rate(request.limit))
        wait_ms = await self._stores.calls.admit(request.user_id, request.endpoint, rate, calls)
        response = pb2.AdmitCallResponse()
        if wait_ms:
            response.retry_after.FromMilliseconds(wait_ms)
        return response

    async def ReserveCalls(self, request: pb2.ReserveCallsRequest, context: Context) -> pb2.ReserveCallsResponse:
        calls, quota, rate = every(
            lambda: _calls(request),
            lambda: _quota(request.quota),
            lambda: _rate(request.limit) if request.limit else None,
        )
        reserved = await self._quotas.reserve(request.user_id, request.endpoint, quota, calls, rate)
        response = pb2.ReserveCallsResponse(
            date=reserved.date, time_zone=reserved.time_zone, rate_limited=reserved.rate_limited
        )
        if reserved.retry_after_s:
            response.retry_after.FromMilliseconds(round(reserved.retry_after_s * 1000))
        return response

    async def RefundCalls(self, request: pb2.RefundCallsRequest, context: Context) -> pb2.RefundCallsResponse:
        calls, date = every(lambda: _calls(request), lambda: _date(request.date))
        await self._quotas.refund(request.user_id, request.endpoint, date, calls)
        return pb2.RefundCallsResponse()

    async def WatchChanges(
        self, request: pb2.WatchChangesRequest, context: Context
    ) -> AsyncIterator[pb2.WatchChangesResponse]:
        pending: dict[str | None, None] = {}
        any_pending = asyncio.Event()

        def on_change(user_id: str | None) -> None:
            # To a slow reader, report that everybody may have changed, so that `pending` does not grow without end.
            if len(pending) >= _MAX_CHANGED_USERS:
                pending.clear()
                user_id = None
            pending[user_id] = None
            any_pending.set()

        with self._streams.opened(), self._listeners.listening(on_change):
            while True:
                await any_pending.wait()
                any_pending.clear()
                users, everybody = [each for each in pending if each], None in pending
                pending.clear()
                yield pb2.WatchChangesResponse(user_ids=users, all=everybody)

    async def RunDoctor(
        self, request: doctor_pb2.RunDoctorRequest, context: Context
    ) -> AsyncIterator[doctor_pb2.RunDoctorResponse]:
        async for answer in doctor_answers(self._doctor, request.mend, doctor_pb2.RunDoctorResponse):
            yield answer


def _caller() -> Identity:
    caller = current_identity()
    assert caller is not None, "the access service is served behind a gate"
    return caller


def _target_user(user_id: str) -> str:
    """Return the user whose sessions are meant, the caller for "". Raises PermissionDenied when only an admin may."""
    caller = _caller()
    if user_id not in ("", caller.user_id) and caller.role.rank < Role.ADMIN.rank:
        raise not_owner(caller)
    return user_id or caller.user_id


def _milliseconds(span: Duration) -> int:
    """Return a span in ms. A positive fraction is rounded up: it must not become 0, which stands for none."""
    whole, remainder = divmod(span.ToNanoseconds(), 1_000_000)
    return whole + 1 if remainder and whole >= 0 else whole


def _calls(request: pb2.AdmitCallRequest | pb2.ReserveCallsRequest | pb2.RefundCallsRequest) -> int:
    """Return how many calls a request is about, 1 for 0. Raises InvalidInput, also for the user or the endpoint."""
    faults = [check_identifier(name, getattr(request, name)) for name in ("user_id", "endpoint")]
    if request.calls < 0:
        faults.append(Violation("calls", f"must not be negative, is {request.calls}"))
    require(faults)
    return request.calls or 1


def _quota(number: int) -> int:
    if not 1 <= number <= MAX_COUNT:
        raise InvalidInput([Violation("quota", f"must be 1 to {MAX_COUNT}, is {number}")])
    return number


def _date(text: str) -> str:
    if not is_date(text):
        raise InvalidInput([Violation("date", "must be a date that ReserveCalls returned, such as 2026-03-29")])
    return text


def _rate(text: str) -> Rate:
    try:
        return Rate.parse(text)
    except ValueError as error:
        raise InvalidInput([Violation("limit", str(error))]) from None


def _role(path: str, number: int, faults: list[Violation]) -> Role | None:
    """Return a role, None when none is named or it has a fault, which is added to `faults`."""
    if not number:
        return None
    try:
        role = role_of(number)
    except KeyError:
        faults.append(Violation(path, f"{number} is not a known role"))
        return None
    if role is Role.SERVICE:
        message = "cannot be given to a user; servers share a secret instead (TRADEWIND_SERVICE_TOKEN)"
        faults.append(Violation(path, message))
        return None
    return role
