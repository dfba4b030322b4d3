"""Maps between Protobuf and the domain: the system's configuration."""

import math
import re
from collections.abc import Iterator

from tradewind.api.node_task_manager.v1 import config_pb2
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.rpc import cache_mapping
from tradewind.node_task_manager.rpc.times import duration
from tradewind.server.all_faults import require
from tradewind.server.faults import Violation
from tradewind.server.identifiers import check_identifier
from tradewind.server.rates import Rate
from tradewind.server.timestamps import milliseconds

FIELDS = tuple(field.name for field in config_pb2.SystemConfig.DESCRIPTOR.fields)
_NUMBERS = ("max_running", "max_running_per_user", "max_running_per_flow", "max_concurrent_tasks")
_MAX_TYPES = 200
_MAX_WEIGHTS = 10_000
_WEIGHTS = (0.01, 100.0)
_ETAG = re.compile(r"v(\d{1,18})", re.ASCII)


def config_message(config: SystemConfig) -> config_pb2.SystemConfig:
    """Return the configuration as a message."""
    return config_pb2.SystemConfig(
        **{name: getattr(config, name) for name in _NUMBERS},
        max_running_per_node_type=config.max_running_per_node_type,
        user_weights=config.user_weights,
        rates={name: str(rate) for name, rate in config.rates.items()},
        enable_cache=config.enable_cache,
        cache_ttl=duration(config.cache_ttl),
        caches={name: cache_mapping.settings_message(each) for name, each in config.all_caches.items()},
    )


def etag(config: SystemConfig) -> str:
    """Return the etag of a configuration, which changes with each write."""
    return f"v{config.version}"


def update(request: config_pb2.UpdateConfigRequest) -> tuple[SystemConfig, tuple[str, ...], int | None]:
    """Parse the new values, the fields to change, and the expected version. Raises InvalidInput with every fault."""
    message = _named(request)
    require(_faults(message, request))
    given = SystemConfig(
        **{name: getattr(message, name) for name in _NUMBERS},
        max_running_per_node_type=dict(message.max_running_per_node_type),
        user_weights=dict(message.user_weights),
        rates={name: Rate.parse(text) for name, text in message.rates.items()},
        enable_cache=message.enable_cache if message.HasField("enable_cache") else True,
        cache_ttl=milliseconds(message.cache_ttl) / 1000 if message.HasField("cache_ttl") else SystemConfig().cache_ttl,
        caches={name: cache_mapping.cache_settings(each) for name, each in message.caches.items()},
    )
    found = _ETAG.fullmatch(request.etag)
    return given, tuple(request.update_mask.paths) or FIELDS, int(found[1]) if found else None


def _named(request: config_pb2.UpdateConfigRequest) -> config_pb2.SystemConfig:
    """Return the new values without the fields that the update mask leaves out; with all if a name in it is wrong."""
    named = config_pb2.SystemConfig()
    named.CopyFrom(request.config)
    paths = set(request.update_mask.paths)
    if paths and paths.issubset(FIELDS):
        for name in set(FIELDS) - paths:
            named.ClearField(name)  # type: ignore[arg-type]
    return named


def _faults(message: config_pb2.SystemConfig, request: config_pb2.UpdateConfigRequest) -> Iterator[Violation | None]:
    if not request.HasField("config") and not request.update_mask.paths:
        # Clients drop fields whose names they do not know; what is left of such a request must not lift every limit.
        yield Violation("config", "must be set; to set all of it to its defaults, send an empty one")
    for name in _NUMBERS:
        if getattr(message, name) < 0:
            yield Violation(f"config.{name}", f"must be at least 1, or 0 for no limit, is {getattr(message, name)}")
    for node_type, most in message.max_running_per_node_type.items():
        path = f"config.max_running_per_node_type[{node_type}]"
        yield check_identifier(path, node_type)
        if most < 1:
            yield Violation(path, f"must be at least 1, is {most}; leave the type out for no limit")
    for user_id, weight in message.user_weights.items():
        path = f"config.user_weights[{user_id}]"
        yield check_identifier(path, user_id)
        if not (math.isfinite(weight) and _WEIGHTS[0] <= weight <= _WEIGHTS[1]):
            yield Violation(path, f"must be a number from {_WEIGHTS[0]} to {_WEIGHTS[1]:g}, is {weight:g}")
    for node_type, text in message.rates.items():
        yield check_identifier(f"config.rates[{node_type}]", node_type)
        try:
            Rate.parse(text)
        except ValueError as error:
            yield Violation(f"config.rates[{node_type}]", str(error))
    yield from cache_mapping.config_faults(message)
    max_of = {"max_running_per_node_type": _MAX_TYPES, "user_weights": _MAX_WEIGHTS, "rates": _MAX_TYPES}
    for name, most in max_of.items():
        if len(getattr(message, name)) > most:
            yield Violation(f"config.{name}", f"at most {most}, there are {len(getattr(message, name))}")
    for at, name in enumerate(request.update_mask.paths):
        if name not in FIELDS:
            yield Violation(f"update_mask.paths[{at}]", f'no field "{name}"; there are {", ".join(FIELDS)}')
    if request.etag and not _ETAG.fullmatch(request.etag):
        yield Violation("etag", "is not the etag of a configuration")
