"""What a client asks the access service."""

from collections.abc import AsyncIterator

import grpc

from tradewind.api.access.v1 import access_service_pb2 as pb
from tradewind.api.access.v1 import session_pb2
from tradewind.client.access import (
    NewToken,
    QuotaRecord,
    Role,
    SessionRecord,
    UserRecord,
    quota_from,
    role_from,
    session_from,
    user_from,
)
from tradewind.client.calls import Request, Response
from tradewind.client.connection import Connection
from tradewind.client.errors import NotFound, TradewindError, Unauthenticated
from tradewind.client.messages import build
from tradewind.client.wire import Seconds, duration, number_of, seconds_of

PAGE = 500


class AccessCalls:
    """The caller's identity, users, sessions and tokens, for stacks that ask for a token."""

    _connection: Connection

    async def who_am_i(self) -> UserRecord:
        """Return the calling user. Raises Unauthenticated."""
        answer = await self._connection.call(self._connection.access.WhoAmI, pb.WhoAmIRequest())
        return UserRecord(answer.user_id, role_from(answer.role))

    async def log_in(self, *, label: str = "") -> NewToken:
        """Begin a session for the caller; it ends when it is idle, and after a fixed time in any case.

        The client never repeats this call: each call would begin another session.
        """
        request = build(pb.CreateSessionRequest, label=label)
        answer = await self._connection.once(self._connection.access.CreateSession, request)
        return NewToken(answer.token, session_from(answer.session))

    async def log_out(self) -> None:
        """End the session of the token that this client carries."""
        to = self._connection
        me = await to.call(to.access.WhoAmI, pb.WhoAmIRequest())
        request = build(pb.RevokeSessionRequest, session_id=me.session_id)
        await to.call_or_done(to.access.RevokeSession, request, NotFound, Unauthenticated)

    async def create_token(
        self, user_id: str = "", *, role: Role | str | None = None, label: str = "", lifetime: Seconds = 0.0
    ) -> NewToken:
        """Create a token for a program of the caller, or for an admin, of any user; `lifetime` 0 is the longest.

        With `role`, an unknown user is added with it. The client never repeats this call: each call would create
        another token. Raises InvalidInput, NotFound for an unknown user, WrongStatus when the user has another role,
        PermissionDenied, Exhausted.
        """
        request = build(
            pb.CreateTokenRequest,
            user_id=user_id,
            role=number_of(session_pb2.Role, role) if role else session_pb2.ROLE_UNSPECIFIED,
            label=label,
            lifetime=duration(seconds_of(lifetime)),
        )
        answer = await self._connection.once(self._connection.access.CreateToken, request)
        return NewToken(answer.token, session_from(answer.session))

    async def list_sessions(self, user_id: str = "") -> AsyncIterator[SessionRecord]:
        """Yield the sessions and tokens of the caller, or for an operator, of any user; newest first."""
        request = build(pb.ListSessionsRequest, user_id=user_id)
        answer = await self._connection.call(self._connection.access.ListSessions, request)
        for each in answer.sessions:
            yield session_from(each)

    async def revoke_session(self, session_id: str, *, user_id: str = "") -> None:
        """Revoke a session or token at once. Raises NotFound, PermissionDenied."""
        request = build(pb.RevokeSessionRequest, session_id=session_id, user_id=user_id)
        await self._revoke(self._connection.access.RevokeSession, request, NotFound)

    async def revoke_sessions(self, user_id: str = "", *, keep_current: bool = False) -> int:
        """Revoke all sessions and tokens of a user, with `keep_current` all but the caller's own; return how many.

        When the call is repeated because its answer was lost, those that the first attempt revoked are not counted.
        """
        request = build(pb.RevokeSessionsRequest, user_id=user_id, keep_current=keep_current)
        answer = await self._revoke(self._connection.access.RevokeSessions, request)
        return 0 if answer is None else answer.count

    async def _revoke(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        *done: type[TradewindError],
    ) -> Response | None:
        """Return the answer, or None when an earlier attempt revoked the sessions, perhaps the caller's own."""
        # A token that is known now, but not when the call is repeated, has been revoked.
        await self.who_am_i()
        return await self._connection.call_or_done(method, request, *done, Unauthenticated)

    async def set_user(self, user_id: str, role: Role | str, *, time_zone: str = "") -> UserRecord:
        """Add a user, or change the role of one at once, and the time zone in which their days begin, if given.

        Raises InvalidInput, PermissionDenied.
        """
        request = build(
            pb.SetUserRequest,
            user=build(session_pb2.User, user_id=user_id, role=number_of(session_pb2.Role, role), time_zone=time_zone),
        )
        return user_from((await self._connection.call(self._connection.access.SetUser, request)).user)

    async def list_quotas(self, user_id: str = "") -> AsyncIterator[QuotaRecord]:
        """Yield how much of each daily quota the caller, or for an operator any user, has used today, by endpoint.

        None for users whose calls are not counted. Raises NotFound, PermissionDenied.
        """
        request = build(pb.ListQuotasRequest, user_id=user_id)
        answer = await self._connection.call(self._connection.access.ListQuotas, request)
        for each in answer.quotas:
            yield quota_from(each)

    async def list_users(self) -> AsyncIterator[UserRecord]:
        """Yield all users, in the service's own order."""
        request = pb.ListUsersRequest(page_size=PAGE)
        async for page in self._connection.pages(self._connection.access.ListUsers, request):
            for user in page.users:
                yield user_from(user)
