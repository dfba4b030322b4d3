"""Pictures of a flow: text for a terminal, Mermaid for Markdown, DOT for Graphviz."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Item = Mapping[str, Any]
"""A node or an edge in Weather Syntax, which may have any fault."""

_MAX_INDENT = 20
_UNICODE = ("├─", "└─", "→")
_ASCII = ("|-", "`-", "->")


def text(nodes: Sequence[Item], edges: Sequence[Item], *, unicode: bool = True) -> str:
    """Draw each component's nodes in an order in which they can run, indented by their depth, with their edges.

    Nodes on a closed path cannot run; they come last and say so. Components are separated by an empty line. Takes
    linear time, apart from sorting.
    """
    fork, last, arrow = _UNICODE if unicode else _ASCII
    known = {_id(node) for node in nodes}
    out: dict[str, list[Item]] = defaultdict(list)
    for edge in edges:
        out[_text(edge, "source")].append(edge)
    depths, parts = _depths(nodes, edges), _components(nodes, edges)
    lines: list[str] = []
    part = 0
    for node in _in_order(nodes, depths, parts):
        if parts[_id(node)] != part:
            part = parts[_id(node)]
            lines.append("")
        node_id = _id(node)
        indent = "  " * min(depths.get(node_id, 0), _MAX_INDENT)
        closed = () if node_id in depths else ("on a closed path, never runs",)
        lines.append("  ".join([f"{indent}{node_id} ({_text(node, 'type')})", *_remarks(node), *closed]))
        leaving = out.pop(node_id, [])
        for place, edge in enumerate(leaving, 1):
            target = _text(edge, "target")
            unknown = "" if target in known else "  no such node"
            branch = last if place == len(leaving) else fork
            handles = f"{_text(edge, 'source_handle')} {arrow} {target}.{_text(edge, 'target_handle')}"
            lines.append(f"{indent}{branch} {handles}{unknown}")
    for source, leaving in out.items():
        lines += [
            f"{source} {arrow} {_text(edge, 'target')}.{_text(edge, 'target_handle')}  no such node" for edge in leaving
        ]
    return "\n".join(lines)


def mermaid(nodes: Sequence[Item], edges: Sequence[Item]) -> str:
    """Draw a flowchart from left to right."""

    def quoted(*labels: str) -> str:
        escaped = [word.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;") for word in labels]
        return '"' + "<br/>".join(escaped) + '"'

    names = _names(nodes, edges)
    labels = _labels(nodes)
    lines = ["flowchart LR"]
    lines += [f"  {name}[{quoted(node_id, *labels.get(node_id, ['?']))}]" for node_id, name in names.items()]
    lines += [
        f"  {names[source]} -->|{quoted(_handles(edge))}| {names[target]}" for edge, source, target in _ends(edges)
    ]
    return "\n".join(lines)


def dot(nodes: Sequence[Item], edges: Sequence[Item]) -> str:
    """Draw a digraph from left to right."""

    def quoted(*labels: str) -> str:
        escaped = [word.replace("\\", "\\\\").replace('"', '\\"') for word in labels]
        return '"' + "\\n".join(escaped) + '"'

    names = _names(nodes, edges)
    labels = _labels(nodes)
    lines = ["digraph flow {", "  rankdir=LR;", "  node [shape=box];"]
    lines += [f"  {name} [label={quoted(node_id, *labels.get(node_id, ['?']))}];" for node_id, name in names.items()]
    lines += [
        f"  {names[source]} -> {names[target]} [label={quoted(_handles(edge))}];"
        for edge, source, target in _ends(edges)
    ]
    return "\n".join([*lines, "}"])


def _labels(nodes: Iterable[Item]) -> dict[str, list[str]]:
    """Return what stands below each node's id: its type, the flow it runs, and what it runs over."""
    return {_id(node): [_text(node, "type"), *_remarks(node)] for node in nodes}


def _remarks(node: Item) -> list[str]:
    """Return what a node does besides its type: `runs flow prices`, `for each of prices, 4 at once`."""
    remarks = []
    config = node.get("config")
    if node.get("type") == "flow" and isinstance(config, Mapping) and "flow_id" in config:
        remarks.append(f"runs flow {config['flow_id']}")
    if node.get("map") is not None:
        limit = f", {_text(node, 'max_parallel')} at once" if node.get("max_parallel") is not None else ""
        remarks.append(f"for each of {_text(node, 'map')}{limit}")
    return remarks


def _id(node: Item) -> str:
    return _text(node, "id")


def _text(item: Item, field: str) -> str:
    return str(item.get(field, "?"))


def _handles(edge: Item) -> str:
    source, target = _text(edge, "source_handle"), _text(edge, "target_handle")
    return source if source == target else f"{source} to {target}"


def _ends(edges: Iterable[Item]) -> Iterable[tuple[Item, str, str]]:
    return ((edge, _text(edge, "source"), _text(edge, "target")) for edge in edges)


def _names(nodes: Iterable[Item], edges: Iterable[Item]) -> dict[str, str]:
    """Return a neutral name for every node, since ids may be keywords of the drawing's language."""
    ids = [_id(node) for node in nodes]
    ids += [end for _, source, target in _ends(edges) for end in (source, target)]
    return {node_id: f"n{place}" for place, node_id in enumerate(dict.fromkeys(ids))}


def _depths(nodes: Sequence[Item], edges: Sequence[Item]) -> dict[str, int]:
    """Return the length of the longest path to each node that can run."""
    waits_for = {_id(node): 0 for node in nodes}
    leads_to: dict[str, list[str]] = defaultdict(list)
    for _, source, target in _ends(edges):
        if source in waits_for and target in waits_for:
            leads_to[source].append(target)
            waits_for[target] += 1
    depths = {node_id: 0 for node_id, count in waits_for.items() if count == 0}
    ready = list(depths)
    for node_id in ready:
        for target in leads_to[node_id]:
            waits_for[target] -= 1
            if waits_for[target] == 0:
                # Nodes become ready in the order of their depths, so this one was led to by the deepest before it.
                depths[target] = depths[node_id] + 1
                ready.append(target)
    return depths


def _components(nodes: Sequence[Item], edges: Sequence[Item]) -> dict[str, int]:
    """Return the component of each node: 0, 1, ... in the order of their first nodes."""
    neighbours: dict[str, list[str]] = {_id(node): [] for node in nodes}
    for _, source, target in _ends(edges):
        if source in neighbours and target in neighbours:
            neighbours[source].append(target)
            neighbours[target].append(source)
    parts: dict[str, int] = {}
    part = 0
    for first in neighbours:
        if first in parts:
            continue
        parts[first] = part
        reached = [first]
        for node_id in reached:
            fresh = [each for each in dict.fromkeys(neighbours[node_id]) if each not in parts]
            parts.update(dict.fromkeys(fresh, part))
            reached += fresh
        part += 1
    return parts


def _in_order(nodes: Sequence[Item], depths: Mapping[str, int], parts: Mapping[str, int]) -> list[Item]:
    """Return the nodes by component, then depth, with nodes that cannot run last; otherwise in their own order."""
    last = len(nodes)
    return sorted(nodes, key=lambda node: (parts[_id(node)], depths.get(_id(node), last)))
