"""Maps between Protobuf and the domain: caches."""

from collections.abc import Collection, Iterator

from google.protobuf.duration_pb2 import Duration

from tradewind.api.node_task_manager.v1 import cache_pb2, config_pb2
from tradewind.node_task_manager.domain.caching import CacheScope, CacheSettings, CacheUse
from tradewind.node_task_manager.rpc.times import duration
from tradewind.node_task_manager.use_cases.cache_statistics import CacheUsage
from tradewind.server.faults import Violation
from tradewind.server.identifiers import check_identifier
from tradewind.server.timestamps import milliseconds

MAX_CACHES = 200
_MAX_ENTRIES = 1_000_000
_LONGEST_KEY = 256
_SHORTEST_MS, _LONGEST_MS = 1000, 366 * 24 * 3600 * 1000
_COMMON = CacheSettings()
_SCOPES = {
    cache_pb2.CACHE_SCOPE_UNSPECIFIED: CacheScope.USER,
    cache_pb2.CACHE_SCOPE_USER: CacheScope.USER,
    cache_pb2.CACHE_SCOPE_FLOW: CacheScope.FLOW,
    cache_pb2.CACHE_SCOPE_GLOBAL: CacheScope.GLOBAL,
}


def cache_use(message: cache_pb2.CacheUse) -> CacheUse | None:
    """Parse which cache a node uses, None when it uses none."""
    if not message.name:
        return None
    return CacheUse(message.name, message.key, _SCOPES[message.scope], milliseconds(message.ttl))


def cache_faults(path: str, message: cache_pb2.CacheUse) -> Iterator[Violation]:
    """Yield the faults of a cache use, without checking that the cache exists."""
    if fault := check_identifier(f"{path}.name", message.name):
        yield fault
    if len(message.key) > _LONGEST_KEY:
        yield Violation(f"{path}.key", f"must have at most {_LONGEST_KEY} characters, has {len(message.key)}")
    if message.scope not in _SCOPES:
        yield Violation(f"{path}.scope", f"{message.scope} is not a known value")
    if message.HasField("ttl"):
        yield from _ttl_faults(f"{path}.ttl", message.ttl)


def ad_hoc_cache_faults(
    path: str, message: cache_pb2.CacheUse, caches: Collection[str], *, batch: bool
) -> Iterator[Violation]:
    """Yield the faults of a cache use outside flows; `caches` are the names of all caches."""
    faults = list(cache_faults(path, message))
    yield from faults
    if not faults and message.name not in caches:
        yield unknown_cache(f"{path}.name", message.name, caches)
    if message.scope == cache_pb2.CACHE_SCOPE_FLOW:
        yield Violation(f"{path}.scope", "must be USER or GLOBAL: tasks and batches belong to no flow")
    if batch and message.key:
        yield Violation(f"{path}.key", "must be empty: all items would get the outputs of the first")


def unknown_cache(path: str, name: str, caches: Collection[str]) -> Violation:
    """Return the fault that there is no such cache, with what to do."""
    return Violation(
        path,
        f'no cache "{name}"; there are {", ".join(sorted(caches))}; add it with: tradewind config set caches.{name}=1h',
    )


def cache_settings(message: cache_pb2.CacheSettings) -> CacheSettings:
    """Parse the settings of a cache."""
    return CacheSettings(milliseconds(message.ttl) / 1000, message.max_entries or _COMMON.max_entries)


def settings_message(settings: CacheSettings) -> cache_pb2.CacheSettings:
    """Return the settings of a cache."""
    return cache_pb2.CacheSettings(ttl=duration(settings.ttl), max_entries=settings.max_entries)


def config_faults(message: config_pb2.SystemConfig) -> Iterator[Violation]:
    """Yield the faults of what the configuration says about caches."""
    if message.HasField("cache_ttl"):
        yield from _ttl_faults("config.cache_ttl", message.cache_ttl)
    if len(message.caches) > MAX_CACHES:
        yield Violation("config.caches", f"at most {MAX_CACHES}, there are {len(message.caches)}")
    for name, settings in message.caches.items():
        path = f"config.caches[{name}]"
        if fault := check_identifier(path, name):
            yield fault
        if settings.HasField("ttl"):
            yield from _ttl_faults(f"{path}.ttl", settings.ttl)
        if not 0 <= settings.max_entries <= _MAX_ENTRIES:
            yield Violation(
                f"{path}.max_entries", f"must be 1 to {_MAX_ENTRIES}, or 0 for 10000, is {settings.max_entries}"
            )


def stats_message(usage: CacheUsage) -> cache_pb2.CacheStats:
    """Return the usage of a cache."""
    ttl = duration(usage.settings.ttl) if usage.settings is not None else None
    return cache_pb2.CacheStats(name=usage.name, ttl=ttl, entries=usage.entries, **usage.counts)


def _ttl_faults(path: str, ttl: Duration) -> Iterator[Violation]:
    if not _SHORTEST_MS <= milliseconds(ttl) <= _LONGEST_MS:
        yield Violation(path, "must be 1 s to 366 days")
