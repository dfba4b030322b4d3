"""Users, and the sessions and tokens that identify them."""

from dataclasses import dataclass
from enum import StrEnum

from tradewind.server.access.roles import Role

MAX_SESSIONS = 200
"""How many sessions and tokens a user may have at once."""
REMEMBERED_MS = 3_600_000
"""How long after its end a session is still told apart from one that never existed."""


class SessionKind(StrEnum):
    """How a session came to be."""

    LOGIN = "login"
    TOKEN = "token"


@dataclass(frozen=True, slots=True)
class User:
    """A user on record; `updated_at` in epoch ms. The user's days are those of `time_zone` (IANA)."""

    user_id: str
    role: Role
    updated_at: int = 0
    time_zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class SessionDraft:
    """A new session: it ends `lifetime_ms` after it is made, or `idle_ms` after its last use (0: it may stay idle)."""

    user_id: str
    kind: SessionKind
    lifetime_ms: int
    idle_ms: int = 0
    label: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    """A session on record; `digest` is that of its token, times are epoch ms."""

    digest: str
    draft: SessionDraft
    created_at: int
    last_activity: int

    @property
    def ends_at(self) -> int:
        """When the session ends even if it is in use."""
        return self.created_at + self.draft.lifetime_ms

    @property
    def expires_at(self) -> int:
        """When the session ends if nobody uses it until then."""
        if not self.draft.idle_ms:
            return self.ends_at
        return min(self.ends_at, self.last_activity + self.draft.idle_ms)
