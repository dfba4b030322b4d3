"""`Flow`: a flow built in Python, or read from a file."""

import inspect
import json
from collections.abc import Mapping
from typing import Any, Literal, Never, Self

from tradewind.flow import drawing
from tradewind.flow.cache import Cache
from tradewind.flow.errors import FlowError
from tradewind.flow.node import DEFAULT_OUTPUT, Handle, Node
from tradewind.flow.node_type import DeclaredNodeType, NodeType, check_config, check_handle, name_of
from tradewind.flow.retry import Retry
from tradewind.flow.rules import check_rule
from tradewind.flow.timeouts import Timeouts
from tradewind.flow.values import Duration, checked_text, duration, given_fields, json_copy, kind_of
from tradewind.server.nearest_name import NearestName

RunIf = Literal["all_succeeded", "any_succeeded", "all_done"]
Overlap = Literal["skip", "queue_one", "queue_all", "cancel_running", "allow"]
FailurePolicy = Literal["skip_downstream", "fail_fast", "continue"]


class Flow:
    """A flow in Weather Syntax, with its id. FlowError means that it is no flow at all; the server checks the rest."""

    def __init__(
        self,
        flow_id: str,
        interval: Duration | None = None,
        *,
        schedule: Mapping[str, Any] | None = None,
        overlap: Overlap | None = None,
        failure_policy: FailurePolicy | None = None,
        timeout: Duration | None = None,
        keep_cycles: int | None = None,
        keep_for: Duration | None = None,
        max_running: int | None = None,
        pause_after_failures: int | None = None,
        labels: Mapping[str, str] | None = None,
        description: str | None = None,
        **unknown: Never,
    ) -> None:
        """Begin a flow without nodes.

        `interval` is the time between cycles, 0 for one cycle only: a number of seconds, text such as "500ms" or "5m",
        or a timedelta. Instead, `schedule` can say more: {"cron": "30 9 * * 1-5", "zone": "Europe/Berlin"}, or
        {"event": {"name": "price", "filter": {"symbol": "AAPL"}}}, or {"flow_finished": {"flow_ids": ["prices"]}}.
        `timeout` limits a cycle, `max_running` how many of its nodes run at once; the newest `keep_cycles` ended cycles
        stay on record, for `keep_for` ("1m" to "7d"); `pause_after_failures` pauses the flow after that many failed
        cycles in a row. None leaves a field at the server's default.
        """
        for argument in unknown:
            raise TypeError(f'Flow has no argument "{argument}"{_argument_hint(argument, unknown[argument])}')
        self.flow_id = flow_id
        self._nodes: list[dict[str, Any]] = []
        self._edges: list[dict[str, Any]] = []
        self._by_id: dict[str, Node] = {}
        self._declared: dict[str, DeclaredNodeType] = {}
        times = {"interval": interval, "timeout": timeout, "keep_for": keep_for}
        plain = {
            "schedule": schedule,
            "overlap": overlap,
            "failure_policy": failure_policy,
            "keep_cycles": keep_cycles,
            "max_running": max_running,
            "pause_after_failures": pause_after_failures,
            "labels": labels,
            "description": description,
        }
        self._fields = given_fields(duration, times) | given_fields(json_copy, plain)

    @classmethod
    def from_weather(cls, flow_id: str, weather: Mapping[str, Any]) -> Self:
        """Return the flow that `weather` describes in Weather Syntax, with all its fields, known or not.

        Raises FlowError when `weather` is not an object, or its nodes or edges are not lists of objects.
        """
        if not isinstance(weather, Mapping):
            raise FlowError(f"a flow is an object with interval, nodes and edges, not {kind_of(weather)}")
        flow = cls(flow_id)
        flow._fields = {
            checked_text(str(key), ""): json_copy(value, str(key))
            for key, value in weather.items()
            if key not in ("nodes", "edges")
        }
        flow._nodes = _objects(weather, "nodes")
        flow._edges = _objects(weather, "edges")
        for node in flow._nodes:
            flow._by_id.setdefault(str(node.get("id", "")), flow._node_of(node))
        return flow

    def __repr__(self) -> str:
        return f"<flow {self.flow_id}: {len(self._nodes)} nodes, {len(self._edges)} edges>"

    def node(
        self,
        node_id: str,
        type: str | NodeType,
        config: Mapping[str, Any] | None = None,
        *,
        run_if: RunIf | None = None,
        schedule_to_start: Duration | None = None,
        timeout: Duration | None = None,
        timeouts: Timeouts | None = None,
        retry: Retry | None = None,
        priority: int | None = None,
        concurrency: Mapping[str, Any] | None = None,
        rate: Mapping[str, Any] | None = None,
        cache: Cache | str | None = None,
        map: str | None = None,
        max_parallel: int | None = None,
        min_success: int | float | None = None,
    ) -> Node:
        """Add a node and return it, so that it can be joined to others.

        `type` is the name of a node type, or the `@node` function itself, whose handles and keys of the config are then
        checked at once. `schedule_to_start` limits the wait for a worker, `timeout` one attempt, and `timeouts` has
        further limits; `retry` says how often the node may be tried.
        Among ready nodes, the one with the higher `priority` (-5 to 5) goes first; one step is worth a minute of
        waiting. `concurrency` limits how many run at once under a key that the user chooses, in any flow, such as
        {"key": "acct-7", "max": 1}; its `when_full` is wait, drop_new, cancel_oldest or keep_newest. `rate` limits how
        many begin per unit of time under a key, such as {"key": "acct-7", "limit": "100/m", "cost": 2}. With `cache`, a
        cache's name or a Cache, the node does not run if the same work was done before.

        `map` names the input that receives a list: the node runs once for each item, at most `max_parallel` (100) at
        once, and emits lists of what these runs emit, in order. It completes when `min_success` of them do: an int is a
        number of items, a float a share above 0 and up to 1.0; the default is all. Raises FlowError when the id is
        taken, the config is not JSON or has an unknown key, or the share is invalid.
        """
        path = f"nodes[{len(self._nodes)}]"
        if node_id in self._by_id:
            raise FlowError(f'there is already a node "{node_id}"', f"{path}.id")
        try:
            node_type = name_of(type)
        except TypeError as error:
            raise FlowError(str(error), f"{path}.type") from None
        weather: dict[str, Any] = {"id": node_id, "type": node_type}
        plain = {
            "config": config,
            "run_if": run_if,
            "priority": priority,
            "concurrency": concurrency,
            "rate": rate,
            "map": map,
            "max_parallel": max_parallel,
        }
        times = {"schedule_to_start": schedule_to_start, "timeout": timeout}
        rules = {"timeouts": timeouts, "retry": retry, "cache": Cache(cache) if isinstance(cache, str) else cache}
        weather |= given_fields(json_copy, plain, path) | given_fields(duration, times, path)
        weather |= {name: _rule(name, rule, f"{path}.{name}") for name, rule in rules.items() if rule is not None}
        if isinstance(min_success, float) and not 0 < min_success <= 1:
            raise FlowError(f"a share must be above 0 and at most 1.0, is {min_success}", f"{path}.min_success")
        # In JSON, 1.0 is 1, which would mean one item; leaving the field out means all of them.
        if min_success is not None and not (isinstance(min_success, float) and min_success == 1):
            weather["min_success"] = json_copy(min_success, f"{path}.min_success")
        if isinstance(type, DeclaredNodeType):
            check_config(type, weather.get("config"), f"{path}.config")
            self._declared[node_id] = type
        self._nodes.append(weather)
        self._by_id[node_id] = node = self._node_of(weather)
        return node

    def sub_flow(
        self,
        node_id: str,
        flow: "str | Flow",
        input: Mapping[str, Any] | None = None,
        *,
        run_if: RunIf | None = None,
        timeouts: Timeouts | None = None,
        retry: Retry | None = None,
        map: str | None = None,
        max_parallel: int | None = None,
        min_success: int | float | None = None,
    ) -> Node:
        """Add a node that runs a cycle of another flow and waits for its end; return it, so that it can be joined.

        `flow` is that flow, or its id. `input` gives the cycle's inputs by name; values that arrive at input handles of
        the node, which may have any name, take precedence. The node's output is what the cycle's last nodes emit:
        {"node": {"handle": value}}. `timeouts` limits all of this by its `total`; with `retry`, each further attempt
        runs a new cycle; the other arguments are as for `node`.
        """
        if not isinstance(flow, str | Flow):
            path = f"nodes[{len(self._nodes)}].config.flow_id"
            raise FlowError(f"must be a Flow, or the id of one, is {kind_of(flow)}", path)
        config: dict[str, Any] = {"flow_id": flow if isinstance(flow, str) else flow.flow_id}
        if input is not None:
            config["input"] = input
        return self.node(
            node_id,
            "flow",
            config,
            run_if=run_if,
            timeouts=timeouts,
            retry=retry,
            map=map,
            max_parallel=max_parallel,
            min_success=min_success,
        )

    def edge(self, source: str, target: str) -> Self:
        """Add an edge between handles of nodes, as in `flow.edge("feed.prices", "fast.prices")`; return the flow.

        A source without a handle means its handle `output`. Raises FlowError when a node does not exist yet, or when
        dots in ids make it ambiguous; then write `flow["a.b"]["x"] >> flow["c"]["y"]`.
        """
        path = f"edges[{len(self._edges)}]"
        for field, given in (("source", source), ("target", target)):
            if not isinstance(given, str):
                raise FlowError(f'must be text, such as "feed.prices"; {given!r} is not', f"{path}.{field}")
        self._handle(source, f"{path}.source", DEFAULT_OUTPUT) >> self._handle(target, f"{path}.target", "")
        return self

    def __getitem__(self, node_id: str) -> Node:
        """Return a node by its id. Raises FlowError, which suggests the nearest id, when there is none."""
        if node_id not in self._by_id:
            raise FlowError(self._no_node(node_id))
        return self._by_id[node_id]

    def __contains__(self, node_id: object) -> bool:
        """Say whether there is a node with this id."""
        return node_id in self._by_id

    __iter__ = None

    def on_failure(self, *nodes: Node) -> None:
        """Run these nodes, joined to no others, after all others have ended badly: as failed, partial or timeout.

        Their entry nodes may have a parameter `outcome`: status, reason, failed_nodes with their errors, failed_count.
        """
        self._handle_outcome("on_failure", nodes)

    def finally_(self, *nodes: Node) -> None:
        """Run these nodes, joined to no others, last, however the others ended; they get an `outcome` as well."""
        self._handle_outcome("finally", nodes)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The flow's nodes, in order."""
        return tuple(self._node_of(weather) for weather in self._nodes)

    def to_weather(self) -> dict[str, Any]:
        """Return the flow in Weather Syntax, as values for JSON."""
        weather = {**self._fields, "nodes": self._nodes, "edges": self._edges}
        return {key: json_copy(value, key) for key, value in weather.items()}

    def to_json(self, indent: int | None = None) -> str:
        """Return the flow in Weather Syntax, as JSON text."""
        return json.dumps(self.to_weather(), indent=indent, ensure_ascii=False, allow_nan=False)

    def to_text(self, *, unicode: bool = True) -> str:
        """Draw the flow for a terminal: nodes in an order in which they can run, with their outgoing edges."""
        return drawing.text(self._nodes, self._edges, unicode=unicode)

    def to_mermaid(self) -> str:
        """Draw the flow as a Mermaid flowchart, which Markdown viewers show as a picture."""
        return drawing.mermaid(self._nodes, self._edges)

    def to_dot(self) -> str:
        """Draw the flow in the language of Graphviz."""
        return drawing.dot(self._nodes, self._edges)

    def _node_of(self, weather: dict[str, Any]) -> Node:
        return Node(weather, self._join)

    def _handle_outcome(self, field: str, nodes: tuple[Node, ...]) -> None:
        for node in nodes:
            if not isinstance(node, Node):
                raise FlowError(f'"{node}" is {kind_of(node)}: write flow["{node}"]', field)
            self._require_own(node, field)
        named = self._fields.setdefault(field, [])
        if not isinstance(named, list):
            raise FlowError(f"must be a list of texts, is {kind_of(named)}", field)
        named.extend(node.id for node in nodes)

    def _require_own(self, node: Node, path: str = "") -> None:
        if node._join != self._join:
            raise FlowError(f'node "{node.id}" belongs to another flow, not to "{self.flow_id}"', path)

    def _join(self, source: Handle, target: Handle) -> None:
        for handle in (source, target):
            self._require_own(handle.node)
        path = f"edges[{len(self._edges)}]"
        if declared := self._declared.get(source.node.id):
            # A node that runs over a list has one more output.
            outputs = (*declared.outputs, "errors") if "map" in source.node._weather else declared.outputs
            check_handle(declared, "output", source.name, outputs, f"{path}.source_handle")
        if declared := self._declared.get(target.node.id):
            check_handle(declared, "input", target.name, declared.inputs, f"{path}.target_handle")
        self._edges.append(
            {
                "source": source.node.id,
                "source_handle": source.name,
                "target": target.node.id,
                "target_handle": target.name,
            }
        )

    def _handle(self, text: str, path: str, default: str) -> Handle:
        """Return the handle in `node.handle`; ids and handles may contain dots, so try every way to split it."""
        splits = [(text[:place], text[place + 1 :]) for place, character in enumerate(text) if character == "."]
        splits.append((text, default))
        found = [(node_id, handle) for node_id, handle in splits if node_id in self._by_id and handle]
        if not found:
            if text in self._by_id:
                raise FlowError(f'which handle of "{text}"? Write "{text}.<handle>"', path)
            raise FlowError(self._no_node(text.rpartition(".")[0] or text), path)
        if len(found) > 1:
            readings = " or ".join(f'"{handle}" of "{node_id}"' for node_id, handle in found)
            message = f'"{text}" is ambiguous: it may be handle {readings}; write flow["<node>"]["<handle>"] >> ...'
            raise FlowError(message, path)
        node_id, handle = found[0]
        return self._by_id[node_id][handle]

    def _no_node(self, node_id: str) -> str:
        return f'no node "{node_id}"{NearestName(self._by_id).hint(node_id, "; add it first")}'


def _objects(weather: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the list of objects under a name; empty when there is none."""
    items = json_copy(weather.get(name, []), name)
    if not isinstance(items, list):
        raise FlowError(f"must be a list, is {kind_of(items)}", name)
    for place, item in enumerate(items):
        if not isinstance(item, dict):
            raise FlowError(f"must be an object, is {kind_of(item)}", f"{name}[{place}]")
    return items


def _rule(name: str, rule: Timeouts | Retry | Cache, path: str) -> dict[str, Any]:
    check_rule(name, rule, path)
    return rule.to_weather(path)


def _argument_hint(name: str, value: object) -> str:
    """Say where an argument that a flow does not have belongs."""
    from tradewind.flow.schedule_spec import KNOWN

    if name in KNOWN:
        return f': it goes into the schedule, schedule={{"{name}": {value!r}}}'
    return NearestName(inspect.signature(Flow).parameters).hint(name)
