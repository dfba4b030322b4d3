"""The limits of the whole system, which operators may change while it runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from tradewind.node_task_manager.domain.caching import BUILT_IN, CacheSettings
from tradewind.server.rates import Rate


@dataclass(frozen=True, slots=True)
class SystemConfig:
    """Limits, 0 for none; `version` rises with each write and is 0 before the first.

    `max_running` and its variants bound how many node tasks run at once: in all, per user, per flow, per node type;
    `max_concurrent_tasks` bounds only the ad-hoc tasks and batches of a user. `user_weights` are users' shares when
    several wait, 1 by default; `rates` bound how many node tasks of a type begin in a period. Cached results are valid
    for `cache_ttl` seconds, unless their cache, in `caches`, says otherwise.
    """

    max_running: int = 0
    max_running_per_user: int = 0
    max_running_per_flow: int = 0
    max_running_per_node_type: Mapping[str, int] = field(default_factory=dict)
    max_concurrent_tasks: int = 0
    user_weights: Mapping[str, float] = field(default_factory=dict)
    rates: Mapping[str, Rate] = field(default_factory=dict)
    enable_cache: bool = True
    cache_ttl: float = 3600.0
    caches: Mapping[str, CacheSettings] = field(default_factory=dict)
    version: int = 0

    def weight(self, user_id: str) -> float:
        """Return the weight of a user when users take turns."""
        return self.user_weights.get(user_id, 1.0)

    @property
    def bounded(self) -> bool:
        """Whether anything limits how many node tasks run, or begin in a period."""
        of_all = (self.max_running, self.max_running_per_user, self.max_running_per_flow, self.max_concurrent_tasks)
        return any(of_all) or bool(self.max_running_per_node_type or self.rates)

    @property
    def all_caches(self) -> dict[str, CacheSettings]:
        """All caches, by name."""
        return {**BUILT_IN, **self.caches}

    def cache(self, name: str) -> CacheSettings | None:
        """Return the settings of a cache, None when there is none of this name or caches are off."""
        if not self.enable_cache:
            return None
        found = self.caches.get(name) or BUILT_IN.get(name)
        return found if found is None or found.ttl else replace(found, ttl=self.cache_ttl)

    def share(self, shard: int, shards: int) -> Self:
        """Return the configuration of one of several shards: limits that span users are split between the shards."""

        def part(limit: int) -> int:
            return limit // shards + (shard < limit % shards)

        return replace(
            self,
            max_running=part(self.max_running),
            max_running_per_node_type={name: part(most) for name, most in self.max_running_per_node_type.items()},
            rates={name: replace(rate, count=part(rate.count)) for name, rate in self.rates.items()},
        )
