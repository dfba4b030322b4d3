"""Users who log in and out in a life, and calls with their tokens at two servers, whose gates ask the access service.

At any time, whatever crashes or freezes:

1. A token that was revoked or replaced passes at no gate FORGOTTEN_S later; nor does one that nobody has given out.
2. A call that passes is that of the token's user, in a role that the user has had within FORGOTTEN_S.
3. Of the calls that are counted by day, no more pass than the quota allows.

And in the end: tokens that were not revoked pass, in the role that their users were given last, and as many counted
calls pass as the quota still allows.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.gate_calls import call
from tests.system.lives.world import QUOTA
from tradewind.access.app import Access
from tradewind.access.domain.session import Session
from tradewind.access.use_cases import users
from tradewind.access.use_cases.open_sessions import revoke
from tradewind.api.node_task_manager.v1.batch_pb2 import GetTaskRequest, SubmitTaskRequest
from tradewind.server.access.gate import Gate
from tradewind.server.access.remote import RemoteAuthority
from tradewind.server.access.roles import Role
from tradewind.server.access.tokens import digest_of, new_token, session_id_of
from tradewind.server.faults import Exhausted, Fault, NotFound, Unauthenticated, Unavailable

NAMES = ("ann", "bob", "eve")
ROLES = (Role.USER, Role.USER, Role.OPERATOR)
FORGOTTEN_S = 10.0
"""An answer that was under way for up to 2 s, which is how long servers wait for it, counts for 5 s."""
_SERVICE = "tradewind.api.node_task_manager.v1.NodeTaskManagerService"


class _Nobodys:
    """A service in which nothing belongs to anybody."""

    async def owners(self, request: Any) -> Collection[str]:
        return ()


@dataclass(eq=False)
class _Token:
    """A token, and since when it is certain that it counts no more; `doubtful` once somebody has tried to revoke it."""

    user_id: str
    text: str
    session_id: str
    ended_s: float | None = None
    doubtful: bool = False


@dataclass
class _Roles:
    """The roles that a user may have: the last that was given for certain, and those that were given since."""

    certain: Role
    possible: list[tuple[Role, float]] = field(default_factory=list)


class AccessUsers:
    """All users; each method that takes a flow's id does one thing. `service` returns some replica of the service."""

    def __init__(self, draw: random.Random, service: Callable[[], Access], channel: Callable[[], Any]) -> None:
        self._draw = draw
        self._service = service
        self._channel = channel
        self._gates: list[Gate] = []
        self._tokens: list[_Token] = []
        self._roles: dict[str, _Roles] = {}
        self._counted: Counter[str] = Counter()
        self._closings: Counter[str] = Counter()
        self._closed: Counter[str] = Counter()
        self._broken: list[str] = []

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Have the users, and two servers."""
        for user_id in NAMES:
            await users.set_user(self._service()._stores.users, user_id, Role.USER, "")
            self._roles[user_id] = _Roles(Role.USER)
            await self._log_in(user_id)
        for _ in range(2):
            authority = RemoteAuthority(self._channel())
            self._gates.append(
                Gate(authority, on_outage="refuse", quotas={"SubmitTask": QUOTA}, owner_lookups={_SERVICE: _Nobodys()})
            )
            self._gates[-1].start()
        try:
            yield
        finally:
            for gate in self._gates:
                await gate.stop()

    async def log_in(self, _: str) -> None:
        await self._log_in(self._draw.choice(NAMES))

    async def _log_in(self, user_id: str) -> None:
        with self._given_out(user_id) as give_out:
            give_out(*await self._service()._open.login(user_id, ""))

    async def log_out(self, _: str) -> None:
        if token := self._any_token():
            token.doubtful = True
            with suppress(NotFound):
                await revoke(self._service()._stores.sessions, token.user_id, token.session_id)
            token.ended_s = token.ended_s or _now_s()

    async def log_out_everywhere(self, _: str) -> None:
        user_id = self._draw.choice(NAMES)
        known = [token for token in self._tokens if token.user_id == user_id]
        for token in known:
            token.doubtful = True
        self._closings[user_id] += 1
        try:
            await self._service()._stores.sessions.close_all(user_id)
        finally:
            self._closed[user_id] += 1
        for token in known:
            token.ended_s = token.ended_s or _now_s()

    async def refresh(self, _: str) -> None:
        if token := self._any_token():
            token.doubtful = True
            digest = digest_of(token.text) or ""
            with suppress(NotFound), self._given_out(token.user_id) as give_out:
                give_out(*await self._service()._open.refresh(digest, token.user_id))
            token.ended_s = token.ended_s or _now_s()

    async def set_role(self, _: str) -> None:
        user_id, role = self._draw.choice(NAMES), self._draw.choice(ROLES)
        roles = self._roles[user_id]
        roles.possible.append((role, float("inf")))
        before, at = roles.certain, len(roles.possible) - 1
        await users.set_user(self._service()._stores.users, user_id, role, "")
        if at == len(roles.possible) - 1:
            # Nobody else has given the user a role meanwhile.
            roles.certain = role
            roles.possible = [(each, min(until_s, _now_s() + FORGOTTEN_S)) for each, until_s in roles.possible]
            roles.possible.append((before, _now_s() + FORGOTTEN_S))

    async def call(self, _: str) -> None:
        """Call methods that are counted, or not, with tokens that may be revoked, or made up."""
        made_up = _Token("ann", new_token("ann"), "", ended_s=-FORGOTTEN_S)
        tokens = self._draw.choices([made_up, *self._tokens[-8:]], k=4)
        await asyncio.gather(*(self._call(self._draw.choice(self._gates), token) for token in tokens))

    async def _call(self, gate: Gate, token: _Token, *, counted: bool | None = None) -> Fault | None:
        """Make a call; note what is not as it must be, and return how it was refused."""
        counted = self._draw.random() < 0.5 if counted is None else counted
        name, request = ("SubmitTask", SubmitTaskRequest()) if counted else ("GetTask", GetTaskRequest())
        begun_s = _now_s()
        try:
            identity, _ = await call(gate, f"/{_SERVICE}/{name}", request, token.text)
        except (Unauthenticated, Unavailable, Exhausted) as refusal:
            return refusal
        assert identity is not None
        if token.ended_s is not None and begun_s > token.ended_s + FORGOTTEN_S:
            self._broken.append(f"a token of {token.user_id} passed {begun_s - token.ended_s:.1f} s after its end")
        roles = self._roles[token.user_id]
        if identity.user_id != token.user_id or identity.role not in self._possible_roles(roles, begun_s):
            self._broken.append(f"a call of {token.user_id} passed as {identity}, with {roles}")
        if counted and identity.role is Role.USER:
            self._counted[token.user_id] += 1
        return None

    def _possible_roles(self, roles: _Roles, at_s: float) -> Collection[Role]:
        return {roles.certain, *(role for role, until_s in roles.possible if at_s <= until_s)}

    async def violations(self) -> list[str]:
        """Return a sentence for everything that was not as it must be, or is not now that nothing is disturbed."""
        for token in [each for each in self._tokens if not each.doubtful]:
            for gate in self._gates:
                refusal = await self._call(gate, token, counted=False)
                if refusal is not None:
                    self._broken.append(f"a good token of {token.user_id} is refused: {refusal}")
        for user_id in NAMES:
            await users.set_user(self._service()._stores.users, user_id, Role.USER, "")
            self._roles[user_id] = _Roles(Role.USER)
            text, session = await self._service()._open.login(user_id, "")
            token = _Token(user_id, text, session_id_of(session.digest))
            _, used = await self._service()._handlers._quotas.used(user_id)
            refusals = [await self._call(gate, token, counted=True) for gate in self._gates for _ in range(QUOTA)]
            passed = refusals.count(None)
            if self._counted[user_id] > QUOTA:
                self._broken.append(f"{self._counted[user_id]} calls of {user_id} passed, {QUOTA} may")
            left = QUOTA - used.get("SubmitTask", (0, 0))[0]
            if passed != left:
                self._broken.append(f"{passed} calls of {user_id} passed, {left} were left")
        return self._broken

    @contextmanager
    def _given_out(self, user_id: str) -> Iterator[Callable[[str, Session], None]]:
        """Take a token that is given out inside; whoever logs out everywhere at that time may revoke it or not."""
        closed = self._closed[user_id]

        def give_out(text: str, session: Session) -> None:
            token = _Token(user_id, text, session_id_of(session.digest))
            token.doubtful = self._closings[user_id] != closed
            self._tokens.append(token)

        yield give_out

    def _any_token(self) -> _Token | None:
        return self._draw.choice(self._tokens) if self._tokens else None


def _now_s() -> float:
    return asyncio.get_running_loop().time()


WEIGHTS = {"log_in": 4, "log_out": 3, "log_out_everywhere": 1, "refresh": 2, "set_role": 2, "call": 14}
"""How often each operation is chosen."""
