"""Reads Weather Syntax, the JSON in which users write flows, and checks each field by itself."""

from dataclasses import dataclass
from typing import Any

from tradewind.scheduler.domain.concurrency import MOST
from tradewind.scheduler.domain.failure_policy import FailurePolicy
from tradewind.scheduler.domain.fault_list import FaultList
from tradewind.scheduler.domain.fields import Fields
from tradewind.scheduler.domain.flow_definition import KEEP_CYCLES, FlowDefinition, OverlapPolicy
from tradewind.scheduler.domain.json_text import UNREADABLE, canonical_json, read_json_text
from tradewind.scheduler.domain.json_values import exact_value
from tradewind.scheduler.domain.labels import read_labels
from tradewind.scheduler.domain.paths import join, shown
from tradewind.scheduler.domain.schedule_definition import (
    KINDS,
    SCHEDULE_FIELDS,
    ScheduleDefinition,
    is_cron,
    read_schedule,
)
from tradewind.scheduler.domain.weather_nodes import EdgeDraft, NodeDraft, read_edge, read_node
from tradewind.server.quoting import listed, quoted

LARGEST_FLOW_BYTES = 3 * 1024 * 1024
MAX_NODES = 10_000
MAX_EDGES = 100_000
"""More than actually fit into the largest flow."""
MAX_KEPT_CYCLES = 10_000
SHORTEST_KEPT_MS, LONGEST_KEPT_MS = 60_000, 7 * 86_400_000
LONGEST_DESCRIPTION = 4096
"""In characters."""

FLOW_FIELDS = (
    "interval",
    "schedule",
    "nodes",
    "edges",
    "overlap",
    "failure_policy",
    "timeout",
    "keep_cycles",
    "keep_for",
    "max_running",
    "pause_after_failures",
    "on_failure",
    "finally",
    "labels",
    "description",
)
GRAPH_FIELDS = ("nodes", "edges", "on_failure", "finally")
"""The fields that say what runs, and in which order."""
MAX_FAILURES = 1000
LONGEST_ID = 128


@dataclass(frozen=True, slots=True)
class FlowDraft:
    """As much of a flow as could be read, of `size` bytes of JSON; `definition` is None when a field was at fault."""

    nodes: tuple[NodeDraft, ...]
    edges: tuple[EdgeDraft, ...]
    definition: FlowDefinition | None
    faults: FaultList
    on_failure: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    size: int = 0

    @property
    def uses_caches(self) -> bool:
        """Whether outputs of any of its nodes may come from caches."""
        return any(node.cache is not None for node in self.nodes)

    @property
    def node_types(self) -> frozenset[str]:
        """The types that its nodes name, for looking up the declarations of live workers."""
        return frozenset(node.node_type for node in self.nodes if node.node_type is not None)


def read_weather_json(text: str, path: str = "weather_json", *, on_record: bool = False) -> FlowDraft:
    """Read Weather Syntax from JSON text; `path` names the text in faults of the text itself."""
    faults = FaultList(on_record=on_record)
    size = len(text) if text.isascii() else len(text.encode(errors="replace"))
    if size > LARGEST_FLOW_BYTES:
        faults.add(path, _too_large(size))
        return FlowDraft((), (), None, faults)
    value = read_json_text(text, path, faults)
    if value is UNREADABLE:
        return FlowDraft((), (), None, faults)
    return _read(exact_value(value, faults), faults, size)


def read_weather(value: object, *, from_struct: bool = False, earlier: FaultList | None = None) -> FlowDraft:
    """Read Weather Syntax from a value as `json.loads` makes it.

    `from_struct` says that the value came in a `google.protobuf.Struct`, in which integers beyond 2^53 are rounded:
    they are faults whose text names the way out, `weather_json`. `earlier` are the faults found while `value` was made;
    they come first.
    """
    faults = FaultList() if earlier is None else earlier.copy()
    exact = exact_value(value, faults, from_struct=from_struct)
    size = _size_of(exact)
    if size > LARGEST_FLOW_BYTES:
        faults.add("flow", _too_large(size))
    return _read(exact, faults, size)


def _size_of(value: Any) -> int:
    """Return how many bytes a value takes as JSON, measured in pieces."""
    if not isinstance(value, dict):
        return len(canonical_json(value).encode())
    lists = [items for items in value.values() if isinstance(items, list)]
    rest = {name: [] if isinstance(item, list) else item for name, item in value.items()}
    commas = sum(max(0, len(items) - 1) for items in lists)
    return (
        len(canonical_json(rest).encode())
        + commas
        + sum(len(canonical_json(i).encode()) for each in lists for i in each)
    )


def definition_from_json(text: str) -> FlowDefinition:
    """Return the definition that `FlowDefinition.to_json` wrote. Raises ValueError for any other text."""
    draft = read_weather_json(text, on_record=True)
    if draft.definition is None:
        first = draft.faults.violations()[0]
        raise ValueError(f"not a stored flow definition: {first.path}: {first.message}")
    return draft.definition


def check_counts(node_count: int, edge_count: int, faults: FaultList) -> bool:
    """Check how many nodes and edges there are; return False when there are far too many to check one by one."""
    if node_count > MAX_NODES:
        faults.add("nodes", f"{node_count} nodes; at most {MAX_NODES}: split the flow")
    if edge_count > MAX_EDGES:
        faults.add("edges", f"{edge_count} edges; at most {MAX_EDGES}: split the flow")
    return node_count <= 2 * MAX_NODES and edge_count <= MAX_EDGES


def _too_large(size: int) -> str:
    return f"{size} bytes of JSON; at most {LARGEST_FLOW_BYTES} (3 MiB): split the flow"


def _read(value: Any, faults: FaultList, size: int) -> FlowDraft:
    if not isinstance(value, dict):
        faults.add("flow", f"must be an object with interval, nodes and edges, is {shown(value)}")
        return FlowDraft((), (), None, faults)
    fields = Fields(value, "", faults)
    misplaced = _misplaced(value, faults)
    fields.refuse_unknown(FLOW_FIELDS, reported=misplaced)
    schedule = _schedule(fields, timing_reported=any(name in KINDS for name in misplaced))
    overlap = OverlapPolicy(fields.choice("overlap", list(OverlapPolicy), OverlapPolicy.SKIP))
    policy = FailurePolicy(fields.choice("failure_policy", list(FailurePolicy), FailurePolicy.SKIP_DOWNSTREAM))
    cycle_timeout_ms = fields.duration("timeout", 0) or None
    keep_cycles = fields.integer("keep_cycles", KEEP_CYCLES, 1, MAX_KEPT_CYCLES)
    keep_for_ms = fields.duration("keep_for", 0, least_ms=SHORTEST_KEPT_MS, max_ms=LONGEST_KEPT_MS)
    max_running = fields.integer("max_running", 0, 1, MOST)
    pause_after_failures = fields.integer("pause_after_failures", 0, 1, MAX_FAILURES)
    on_failure = fields.texts("on_failure", MAX_NODES, LONGEST_ID)
    last = fields.texts("finally", MAX_NODES, LONGEST_ID)
    labels = read_labels(fields.mapping("labels"), faults)
    description = fields.text("description", LONGEST_DESCRIPTION)
    nodes_given = fields.required("nodes", "is required and must hold at least one node")
    if nodes_given == []:
        faults.add("nodes", "must hold at least one node")
    if not check_counts(_count(nodes_given), _count(value.get("edges")), faults):
        return FlowDraft((), (), None, faults)
    nodes = tuple(read_node(Fields(item, join("nodes", index), faults)) for index, item in fields.objects("nodes"))
    edges = tuple(read_edge(Fields(item, join("edges", index), faults)) for index, item in fields.objects("edges"))
    if len(faults):
        return FlowDraft(nodes, edges, None, faults, on_failure, last, size)
    definition = FlowDefinition(
        schedule=schedule,
        nodes=tuple(node.definition for node in nodes if node.definition is not None),
        edges=tuple(edge.definition for edge in edges if edge.definition is not None),
        overlap=overlap,
        failure_policy=policy,
        cycle_timeout_ms=cycle_timeout_ms,
        keep_cycles=keep_cycles,
        max_running=max_running,
        pause_after_failures=pause_after_failures,
        on_failure=on_failure,
        last=last,
        keep_for_ms=keep_for_ms,
        labels=labels,
        description=description,
    )
    return FlowDraft(nodes, edges, definition, faults, on_failure, last, size)


def _misplaced(value: dict[str, Any], faults: FaultList) -> list[str]:
    """Note fields of a schedule that stand beside it instead of in it, and return their names."""
    found = [name for name in SCHEDULE_FIELDS if name in value and name not in FLOW_FIELDS]
    for name in found:
        example = quoted(value[name]) if isinstance(value[name], str) else "..."
        how = f': write "schedule": {{"{name}": {example}}}' if name in KINDS else f", beside {listed(list(KINDS))}"
        faults.add(name, f"belongs in schedule{how}")
    return found


def _schedule(fields: Fields, *, timing_reported: bool) -> ScheduleDefinition:
    """Return the schedule given by `interval` or `schedule`.

    One of them is required, unless a fault has already said that a misplaced field goes into `schedule`.
    """
    for name in ("schedule", "interval"):
        if isinstance(text := fields.get(name), str) and is_cron(text):
            fields.fault(name, f'is a cron expression: write "schedule": {{"cron": {quoted(text)}}}')
            return ScheduleDefinition()
    schedule = fields.get("schedule")
    if schedule is None:
        if not timing_reported:
            fields.required("interval", 'is required; give seconds, or text such as "5m"; 0 runs once')
        return ScheduleDefinition(fields.duration("interval", 0))
    if fields.get("interval") is not None:
        fields.fault("interval", "put the interval into schedule, or remove schedule")
    if not isinstance(schedule, dict):
        fields.fault("schedule", f'must be an object, such as {{"cron": "0 * * * *"}}, is {shown(schedule)}')
        return ScheduleDefinition()
    return read_schedule(Fields(schedule, "schedule", fields.faults))


def _count(given: Any) -> int:
    return len(given) if isinstance(given, list) else 0
