"""Reads the nodes and edges of Weather Syntax."""

from dataclasses import dataclass, field
from typing import Any

from tradewind.scheduler.domain.cache_definition import read_cache
from tradewind.scheduler.domain.concurrency import read_concurrency
from tradewind.scheduler.domain.fan_out import FAN_OUT_FIELDS, read_fan_out
from tradewind.scheduler.domain.fields import Fields
from tradewind.scheduler.domain.json_text import canonical_json
from tradewind.scheduler.domain.key_rate import read_rate
from tradewind.scheduler.domain.node_definition import EdgeDefinition, NodeDefinition, RunIf
from tradewind.scheduler.domain.node_timeouts import read_timeouts
from tradewind.scheduler.domain.paths import join
from tradewind.scheduler.domain.retry_definition import read_retry
from tradewind.scheduler.domain.secret_references import Keys, check_secrets
from tradewind.server.hidden_values import SECRET_KEY

LARGEST_CONFIG_BYTES = 256 * 1024
LOWEST_PRIORITY, HIGHEST_PRIORITY = -5, 5

_NODE_FIELDS = (
    *("id", "type", "config", "run_if", "schedule_to_start", "timeout", "timeouts", "priority", "retry"),
    *("concurrency", "rate", "cache"),
    *FAN_OUT_FIELDS,
)
_EDGE_FIELDS = ("source", "source_handle", "target", "target_handle")


@dataclass(frozen=True, slots=True)
class NodeDraft:
    """As much of a node as could be read.

    `path` is its place in the flow, `secrets` are the places of secret references in its config, and `cache` is the
    name of the cache that it uses, None for none.
    """

    path: str
    node_id: str | None
    node_type: str | None
    config: dict[str, Any] = field(repr=False)
    secrets: frozenset[Keys]
    definition: NodeDefinition | None
    cache: str | None = None

    @property
    def mapped_input(self) -> str | None:
        """The input whose list it runs over, None when it runs once or is at fault."""
        fan_out = self.definition.fan_out if self.definition is not None else None
        return fan_out.handle if fan_out is not None else None


@dataclass(frozen=True, slots=True)
class EdgeDraft:
    """As much of an edge as could be read; `path` is its place in the flow."""

    path: str
    source: str | None
    source_handle: str | None
    target: str | None
    target_handle: str | None
    definition: EdgeDefinition | None


def read_node(fields: Fields) -> NodeDraft:
    """Read a node."""
    fields.refuse_unknown(_NODE_FIELDS)
    node_id = fields.identifier("id")
    node_type = fields.identifier("type")
    config = fields.mapping("config")
    run_if = RunIf(fields.choice("run_if", list(RunIf), RunIf.ALL_SUCCEEDED))
    timeouts = read_timeouts(fields)
    priority = fields.integer("priority", 0, LOWEST_PRIORITY, HIGHEST_PRIORITY)
    concurrency = read_concurrency(fields)
    rate = read_rate(fields)
    cache = read_cache(fields)
    fan_out = read_fan_out(fields)
    retry = read_retry(fields)
    config_json = canonical_json(config)
    size = len(config_json) if config_json.isascii() else len(config_json.encode())
    if size > LARGEST_CONFIG_BYTES:
        limit = f"{LARGEST_CONFIG_BYTES} (256 KiB)"
        fields.fault("config", f"{size} bytes of compact JSON; at most {limit}: pass large data by reference")
    secrets: frozenset[Keys] = frozenset()
    if f'"{SECRET_KEY}":' in config_json:
        secrets = check_secrets(config, join(fields.path, "config"), fields.faults)
    definition = None
    if not fields.faulty and node_id is not None and node_type is not None:
        definition = NodeDefinition(
            node_id,
            node_type,
            config_json,
            run_if,
            timeouts.schedule_to_start_ms,
            timeouts.start_to_close_ms,
            retry=retry,
            priority=priority,
            concurrency=concurrency,
            rate=rate,
            cache=cache,
            total_ms=timeouts.total_ms,
            heartbeat_ms=timeouts.heartbeat_ms,
            fan_out=fan_out,
        )
    return NodeDraft(fields.path, node_id, node_type, config, secrets, definition, cache.name if cache else None)


def read_edge(fields: Fields) -> EdgeDraft:
    """Read an edge."""
    fields.refuse_unknown(_EDGE_FIELDS)
    source = fields.reference("source")
    source_handle = fields.identifier("source_handle")
    target = fields.reference("target")
    target_handle = fields.identifier("target_handle")
    definition = None
    if not fields.faulty and source and source_handle and target and target_handle:
        definition = EdgeDefinition(source, source_handle, target, target_handle)
    return EdgeDraft(fields.path, source, source_handle, target, target_handle, definition)
