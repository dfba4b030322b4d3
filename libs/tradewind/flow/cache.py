"""The cache that a node's outputs may come from."""

from dataclasses import dataclass
from typing import Any, Literal

from tradewind.api.node_task_manager.v1 import cache_pb2
from tradewind.flow.values import Duration, duration, given_fields, json_copy, kind_of, seconds_in

Scope = Literal["user", "flow", "global"]

SCOPES: dict[str, cache_pb2.CacheScope.ValueType] = {
    "user": cache_pb2.CACHE_SCOPE_USER,
    "flow": cache_pb2.CACHE_SCOPE_FLOW,
    "global": cache_pb2.CACHE_SCOPE_GLOBAL,
}


@dataclass(frozen=True, slots=True)
class Cache:
    """A node's outputs may be those that another run of the same work has put into the cache `name`.

    The same work means the same node type and version with the same config and inputs or, if `key` is given, the same
    key. `scope` says whose runs count: the same user's (the default), the same flow's, or everybody's. Outputs are good
    for at most `ttl`: seconds, text such as "10m", or a timedelta; None leaves it to the cache.
    """

    name: str
    key: str | None = None
    scope: Scope | None = None
    ttl: Duration | None = None

    @classmethod
    def of(cls, given: "Cache | str") -> "Cache":
        """Return the cache with the given name, or the given cache itself. Raises TypeError for anything else."""
        if not isinstance(given, str | Cache):
            raise TypeError(f"it must be the name of a cache, or a Cache, not {kind_of(given)}")
        return cls(given) if isinstance(given, str) else given

    def to_weather(self, path: str = "cache") -> dict[str, Any]:
        """Return it in Weather Syntax; FlowError reports `path` as its place."""
        plain = {"name": self.name, "key": self.key, "scope": self.scope}
        return given_fields(json_copy, plain, path) | given_fields(duration, {"ttl": self.ttl}, path)

    def to_message(self) -> cache_pb2.CacheUse:
        """Return it as a message. Raises ValueError for an invalid scope or length of time."""
        if self.scope is not None and self.scope not in SCOPES:
            raise ValueError(f'"{self.scope}" is not one of {", ".join(SCOPES)}')
        message = cache_pb2.CacheUse(name=self.name, key=self.key or "")
        if self.scope is not None:
            message.scope = SCOPES[self.scope]
        if self.ttl is not None:
            message.ttl.FromMilliseconds(round(seconds_in(self.ttl) * 1000))
        return message
