"""A gate for calls without a server, and an authority that counts how often it is asked."""

import asyncio
from collections.abc import Collection
from typing import Any

from tradewind.server.access.authority import Changed, Reservation
from tradewind.server.access.gate import Gate
from tradewind.server.access.identity import Identity, current_identity
from tradewind.server.access.refusals import refusal_for
from tradewind.server.access.roles import Role
from tradewind.server.access.tokens import digest_of, new_token
from tradewind.server.faults import Unavailable
from tradewind.server.rates import Rate

SCHEDULER = "/tradewind.api.scheduler.v1.SchedulerService/"


class Authority:
    """An authority that knows its tokens by heart."""

    def __init__(self) -> None:
        self.roles: dict[str, tuple[str, Role]] = {}
        self.asked = 0
        self.away = False
        self.counted: list[tuple[str, str, int]] = []
        self.used = 0
        self.reservations = 0
        self.changed: Changed | None = None

    def token(self, user_id: str, role: Role = Role.USER) -> str:
        """Return a new token of a user."""
        token = new_token(user_id)
        self.roles[digest_of(token) or ""] = (user_id, role)
        return token

    def set(self, token: str, role: Role | None) -> None:
        """Change the role of a token's user (None revokes the token) and announce the change."""
        digest = digest_of(token) or ""
        user_id, _ = self.roles.pop(digest)
        if role is not None:
            self.roles[digest] = (user_id, role)
        if self.changed is not None:
            self.changed(user_id)

    async def authorize(self, digest: str) -> Identity:
        self.asked += 1
        await asyncio.sleep(0)
        if self.away:
            raise Unavailable("PEER_UNAVAILABLE", "away")
        if digest not in self.roles:
            raise refusal_for("TOKEN_INVALID")
        return Identity(*self.roles[digest], digest[:20], digest)

    async def admit(self, user_id: str, endpoint: str, rate: Rate, calls: int) -> float:
        if self.away:
            raise Unavailable("PEER_UNAVAILABLE", "away")
        self.counted.append((user_id, endpoint, calls))
        return 0 if len(self.counted) <= rate.count else 1.5

    async def reserve(
        self, user_id: str, endpoint: str, quota: int, calls: int, rate: Rate | None = None
    ) -> Reservation:
        self.reservations += 1
        if self.away:
            raise Unavailable("PEER_UNAVAILABLE", "away")
        if self.used + calls > quota:
            return Reservation("2026-03-29", "Europe/Berlin", 3600.0)
        if rate is not None and (wait_s := await self.admit(user_id, endpoint, rate, calls)):
            return Reservation("2026-03-29", "Europe/Berlin", wait_s, rate_limited=True)
        self.used += calls
        return Reservation("2026-03-29", "Europe/Berlin")

    async def refund(self, user_id: str, endpoint: str, date: str, calls: int) -> None:
        if self.away:
            raise Unavailable("PEER_UNAVAILABLE", "away")
        assert date == "2026-03-29"
        self.used -= calls

    async def watch(self, changed: Changed) -> None:
        self.changed = changed
        changed(None)
        await asyncio.Event().wait()

    async def close(self) -> None:
        pass


class Owners:
    """A service in which a flow belongs to the user whose name begins its id."""

    async def owners(self, request: Any) -> Collection[str]:
        flow_id = getattr(request, "flow_id", "")
        return [flow_id.partition("-")[0]] if flow_id else []


class Context:
    """The context of a call with a token, and with the names in the client's certificate."""

    def __init__(self, token: str | None, *names: str) -> None:
        self._token = token
        self._names = names

    def auth_context(self) -> Any:
        return {"peer_dns": [name.encode() for name in self._names]}

    def invocation_metadata(self) -> Any:
        return (("user-agent", "test"), *((("authorization", f"Bearer {self._token}"),) if self._token else ()))


async def call(gate: Gate, method: str, request: Any, token: str | None, *names: str) -> tuple[Identity | None, Any]:
    """Call a method of the scheduler through a gate, with a token and the names of a certificate.

    Returns the identity and the request that its handler saw.
    """

    async def handler(request: Any, context: Any) -> Any:
        return current_identity(), request

    context: Any = Context(token, *names)
    surrounded = gate.around(method if method.startswith("/") else SCHEDULER + method, handler)

    async def one_call() -> tuple[Identity | None, Any]:
        answer: tuple[Identity | None, Any] = await surrounded(request, context)
        return answer

    # Each call has a context of its own, as in a server.
    return await asyncio.create_task(one_call())
