"""Caches of results: who may share them, how long they are good for, and by which name a result is found again."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

JITTER = 0.1
"""A result ends after 90 to 100 % of its time, so that those of one moment do not all end in one."""
MAX_BYTES = 256 * 1024
"""Outputs that are larger together are not kept."""
_FORMAT = "1"
"""Of what is kept; results of another one are not found."""


class CacheScope(StrEnum):
    """Who shares the results in a cache."""

    USER = "user"
    FLOW = "flow"
    GLOBAL = "global"

    def owner(self, user_id: str, flow_id: str) -> str:
        """Return whose results these are; without a flow those of a flow are its user's."""
        match self:
            case CacheScope.USER:
                return f"user:{user_id}"
            case CacheScope.FLOW:
                return f"flow:{user_id}:{flow_id}" if flow_id else f"user:{user_id}"
            case CacheScope.GLOBAL:
                return "global"


@dataclass(frozen=True, slots=True)
class CacheUse:
    """A node's outputs may come from cache `name`: under `key`, where that is given, whatever its config and inputs.

    They are good for `ttl_ms` at most, 0 for as long as the cache says.
    """

    name: str
    key: str = ""
    scope: CacheScope = CacheScope.USER
    ttl_ms: int = 0


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """How long results of a cache are good for (s, 0 for the common time), and how many are kept in each shard."""

    ttl: float = 0.0
    max_entries: int = 10_000


BUILT_IN = {"screening": CacheSettings(3600.0), "analysis": CacheSettings(7200.0)}
"""Caches that are always there."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The name of a result: its cache, and a digest of all that it depends on."""

    cache: str
    digest: str

    def __str__(self) -> str:
        return f"{self.cache}:{self.digest}"


def entry_of(use: CacheUse, owner: str, node_type: str, version: str, depends_on: Iterable[str]) -> Entry:
    """Return the name of a result; `depends_on` are config and inputs in a canonical form, ignored under a key."""
    parts = (_FORMAT, owner, node_type, version)
    rest = ("key", use.key) if use.key else ("inputs", *depends_on)
    digest = hashlib.sha256()
    for part in (*parts, *rest):
        raw = part.encode(errors="surrogatepass")
        digest.update(b"%d:" % len(raw))
        digest.update(raw)
    return Entry(use.name, digest.hexdigest())
