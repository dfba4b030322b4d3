"""The cache that a node's outputs may come from, as a flow defines it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tradewind.scheduler.domain.fields import Fields
from tradewind.scheduler.domain.intervals import format_duration
from tradewind.scheduler.domain.paths import join

_FIELDS = ("name", "key", "scope", "ttl")
_LONGEST_KEY = 256
_LONGEST_MS = 366 * 86_400_000


class CacheScope(StrEnum):
    """Who shares the outputs in a cache."""

    USER = "user"
    FLOW = "flow"
    GLOBAL = "global"


@dataclass(frozen=True, slots=True)
class CacheDefinition:
    """The cache `name` that outputs may come from, under `key` if that is given.

    Outputs are valid for at most `ttl_ms`; 0 leaves that to the cache.
    """

    name: str
    key: str = ""
    scope: CacheScope = CacheScope.USER
    ttl_ms: int = 0

    def to_weather(self) -> dict[str, Any]:
        """Return it in Weather Syntax, without fields at their defaults."""
        weather: dict[str, Any] = {"name": self.name}
        if self.key:
            weather["key"] = self.key
        if self.scope is not CacheScope.USER:
            weather["scope"] = self.scope.value
        if self.ttl_ms:
            weather["ttl"] = format_duration(self.ttl_ms)
        return weather


def read_cache(node: Fields) -> CacheDefinition | None:
    """Read the field `cache` of a node, a name or an object; None when it is absent or at fault."""
    given = node.get("cache")
    named = Fields({"name": given}, join(node.path, "cache"), node.faults) if isinstance(given, str) else None
    fields = named or node.nested("cache")
    if fields is None:
        return None
    fields.refuse_unknown(_FIELDS)
    name = fields.identifier("name")
    key = fields.text("key", _LONGEST_KEY)
    scope = CacheScope(fields.choice("scope", list(CacheScope), CacheScope.USER))
    ttl_ms = fields.duration("ttl", 0, least_ms=1000, max_ms=_LONGEST_MS)
    return CacheDefinition(name, key, scope, ttl_ms) if name is not None and not fields.faulty else None
