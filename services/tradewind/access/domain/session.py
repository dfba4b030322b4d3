"""Users, and the sessions and tokens by which they are known."""

from dataclasses import dataclass
from enum import StrEnum

from tradewind.server.access.roles import Role

MOST_SESSIONS = 200
"""How many sessions and tokens a user may have at once."""
REMEMBERED_MS = 3_600_000
"""For so long after its end a session is told apart from one that never was."""


class SessionKind(StrEnum):
    """How a session came to be."""

    LOGIN = "login"
    TOKEN = "token"


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who may call; `updated_at` in epoch ms, days begin in `time_zone` (IANA)."""

    user_id: str
    role: Role
    updated_at: int = 0
    time_zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class Draft:
    """A session to be: it ends `lifetime_ms` after it was made, and `idle_ms` after its last use, 0 for never idle."""

    user_id: str
    kind: SessionKind
    lifetime_ms: int
    idle_ms: int = 0
    label: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    """A session on record; `digest` is that of its token, times are epoch ms."""

    digest: str
    draft: Draft
    created_at: int
    last_activity: int

    @property
    def ends_at(self) -> int:
        """When it ends whatever happens."""
        return self.created_at + self.draft.lifetime_ms

    @property
    def expires_at(self) -> int:
        """When it ends if nobody uses it until then."""
        if not self.draft.idle_ms:
            return self.ends_at
        return min(self.ends_at, self.last_activity + self.draft.idle_ms)
