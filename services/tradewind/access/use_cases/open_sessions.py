"""Opens sessions and makes tokens, and ends them."""

from collections.abc import Sequence
from dataclasses import dataclass

from tradewind.access.domain.session import MAX_SESSIONS, Session, SessionDraft, SessionKind
from tradewind.access.ports import Refusal, SessionStore
from tradewind.access.use_cases.reserved_names import reserved_name
from tradewind.server.access.roles import Role
from tradewind.server.access.tokens import digest_of, new_token
from tradewind.server.durations import duration_text
from tradewind.server.faults import Exhausted, FailedPrecondition, InvalidInput, NotFound, Violation
from tradewind.server.identifiers import check_identifier, require_identifiers

MAX_LABEL = 128


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long a session lives, how long while idle, and how long a token may live, in milliseconds."""

    session: int = 86_400_000
    idle: int = 7_200_000
    token: int = 90 * 86_400_000


class OpenSessions:
    """Gives out tokens."""

    def __init__(self, sessions: SessionStore, lifetimes: Lifetimes) -> None:
        self._sessions = sessions
        self._lifetimes = lifetimes

    async def login(self, user_id: str, label: str) -> tuple[str, Session]:
        """Begin a session; return its token and the session. Raises InvalidInput, NotFound, Exhausted."""
        lifetimes = self._lifetimes
        draft = SessionDraft(user_id, SessionKind.LOGIN, lifetimes.session, lifetimes.idle, label)
        return await self._open(draft, None, [])

    async def token(
        self, user_id: str, label: str, lifetime_ms: int, role: Role | None, role_faults: Sequence[Violation] = ()
    ) -> tuple[str, Session]:
        """Make a token for a program that is valid for `lifetime_ms`, or for the longest time allowed when that is 0.

        With `role`, a user who is not on record is put there; `role_faults` were found while it was read. Raises
        InvalidInput with every fault, NotFound, Exhausted, and FailedPrecondition when the user has another role.
        """
        longest_ms = self._lifetimes.token
        faults = [*role_faults]
        if not 0 <= lifetime_ms <= longest_ms:
            limits = f"must be from 0, for the longest, to {duration_text(longest_ms)}"
            faults.append(Violation("lifetime", f"{limits}, is {duration_text(lifetime_ms)}"))
        if role is not None:
            faults += reserved_name("user_id", user_id)
        return await self._open(
            SessionDraft(user_id, SessionKind.TOKEN, lifetime_ms or longest_ms, 0, label), role, faults
        )

    async def refresh(self, digest: str, user_id: str) -> tuple[str, Session]:
        """Replace a token with a new one. Raises NotFound."""
        token = new_token(user_id)
        made = await self._sessions.replace(digest, _digest(token))
        if isinstance(made, Refusal):
            raise NotFound("session", digest[:20])
        return token, made

    async def _open(self, draft: SessionDraft, role: Role | None, faults: list[Violation]) -> tuple[str, Session]:
        fault = check_identifier("user_id", draft.user_id)
        if fault is not None:
            faults.append(fault)
        if len(draft.label) > MAX_LABEL:
            faults.append(Violation("label", f"must have at most {MAX_LABEL} characters, has {len(draft.label)}"))
        if faults:
            raise InvalidInput(faults)
        token = new_token(draft.user_id)
        made = await self._sessions.open(_digest(token), draft, role)
        if isinstance(made, Session):
            return token, made
        if made is Refusal.UNKNOWN_USER:
            raise NotFound("user", draft.user_id)
        if made is Refusal.OTHER_ROLE:
            message = f'user "{draft.user_id}" has a role other than {role}: change it first (SetUser)'
            raise FailedPrecondition("WRONG_STATUS", message, f"users/{draft.user_id}")
        message = f'user "{draft.user_id}" already has the maximum of {MAX_SESSIONS} sessions and tokens: revoke some'
        raise Exhausted("QUEUE_FULL", message, 60.0)


async def revoke(sessions: SessionStore, user_id: str, session_id: str) -> None:
    """End a session. Raises InvalidInput, NotFound."""
    require_identifiers(user_id=user_id, session_id=session_id)
    if not await sessions.close(user_id, session_id):
        raise NotFound("session", session_id)


def _digest(token: str) -> str:
    digest = digest_of(token)
    assert digest is not None
    return digest
