"""Caches of results: who may share them, how long they are valid, and the name under which a result is found again."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from tradewind.node_task_manager.domain.digests import digest_of

JITTER = 0.1
"""A result expires after 90 to 100 % of its time, so that results of the same moment do not all expire together."""
MAX_BYTES = 256 * 1024
"""Outputs that are larger than this in all are not kept."""
_FORMAT = "1"
"""The format of stored results; results of another format are not found."""


class CacheScope(StrEnum):
    """Who shares the results in a cache."""

    USER = "user"
    FLOW = "flow"
    GLOBAL = "global"

    def owner(self, user_id: str, flow_id: str) -> str:
        """Return who owns the results; outside any flow, `FLOW` means the user."""
        match self:
            case CacheScope.USER:
                return f"user:{user_id}"
            case CacheScope.FLOW:
                return f"flow:{user_id}:{flow_id}" if flow_id else f"user:{user_id}"
            case CacheScope.GLOBAL:
                return "global"


@dataclass(frozen=True, slots=True)
class CacheUse:
    """A node's outputs may come from cache `name`; with a `key` they are found by it, whatever the config and inputs.

    They are valid for `ttl_ms` at most; 0 leaves that to the cache.
    """

    name: str
    key: str = ""
    scope: CacheScope = CacheScope.USER
    ttl_ms: int = 0


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """How long results of a cache are valid (s, 0 for the system's default), and how many are kept in each shard."""

    ttl: float = 0.0
    max_entries: int = 10_000


BUILT_IN = {"screening": CacheSettings(3600.0), "analysis": CacheSettings(7200.0)}
"""Caches that are always there."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The name of a result: its cache, and a digest of everything the result depends on."""

    cache: str
    digest: str

    def __str__(self) -> str:
        return f"{self.cache}:{self.digest}"


def entry_of(use: CacheUse, owner: str, node_type: str, version: str, depends_on: Iterable[str]) -> Entry:
    """Return the name of a result; `depends_on` is config and inputs in canonical form, ignored when a key is set."""
    rest = ("key", use.key) if use.key else ("inputs", *depends_on)
    return Entry(use.name, digest_of((_FORMAT, owner, node_type, version, *rest)))
