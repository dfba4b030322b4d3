"""Analyses, plans, registrations and differences of flows in words."""

import difflib
import json
from collections.abc import Iterable

from tradewind.cli.flow_status import size_text
from tradewind.cli.screen import Screen, counted, iso
from tradewind.client import (
    ComponentWaves,
    FlowAnalysis,
    FlowDiff,
    FlowPlan,
    RegisteredFlow,
    RevisionDefinition,
    Violation,
)

_NODES_SHOWN = 6
_WAVES_SHOWN = 50
_VALUE_SHOWN = 60
_STYLES = {"+": "green", "-": "red", "~": "yellow", "@": "cyan"}


def declared_elsewhere(violations: Iterable[Violation]) -> list[str]:
    """Return a note, if there is a fault that a worker may cause which still runs the code from before a change."""
    if not any(each.path.endswith("_handle") or ".config" in each.path for each in violations):
        return []
    return ["workers say which handles and configs their nodes have: start them again after changing a node"]


def show_analysis(screen: Screen, analysis: FlowAnalysis) -> None:
    """Print the components of a definition, and its warnings."""
    rows = [
        (part.component_id, str(len(part.nodes)), ", ".join(part.entry_nodes), " -> ".join(part.cycle_path))
        for part in analysis.components
    ]
    screen.table(["COMPONENT", "NODES", "ENTRY NODES", "CYCLE"], rows)
    _show_warnings(screen, analysis.warnings)


def show_registration(screen: Screen, registered: RegisteredFlow) -> None:
    """Print what registering did."""
    flow = registered.flow
    what = f"revision {flow.revision}, {size_text(flow.node_count, len(flow.components))}"
    screen.line(f"{flow.flow_id} {'registered' if registered.changed else 'is unchanged'}: {what}")
    _show_warnings(screen, registered.warnings)


def show_plan(screen: Screen, plan: FlowPlan) -> None:
    """Print what registering would do."""
    screen.line(_headline(plan))
    for violation in plan.violations:
        screen.line(f"  {violation}", "red")
    if plan.diff is not None:
        for line in _changed_lines(plan.diff):
            screen.line(f"  {line}", _STYLES.get(line[0]))
    if plan.components:
        screen.line()
        rows = [row for component in plan.components for row in _waves(component)]
        screen.table(["COMPONENT", "WAVE", "NODES", ""], rows[:_WAVES_SHOWN])
        if len(rows) > _WAVES_SHOWN:
            screen.line(f"and {len(rows) - _WAVES_SHOWN} more waves; -o json prints them all", "dim")
    if plan.placements:
        screen.line()
        screen.table(
            ["TYPE", "NODES", "WORKERS", "SLOTS", "FREE", "DRAINING"],
            [
                (
                    each.node_type,
                    str(each.node_count),
                    str(each.worker_count) if each.worker_count else "none",
                    str(each.slots or ""),
                    str(each.free_slots) if each.slots else "",
                    str(each.draining or ""),
                )
                for each in plan.placements
            ],
        )
    if plan.valid:
        _show_bounds(screen, plan)
    for warning in plan.warnings:
        screen.line(f"note: {warning}", "yellow")


def show_difference(screen: Screen, name: str, before: RevisionDefinition, after: RevisionDefinition) -> None:
    """Print how two revisions differ, line by line."""
    lines = list(
        difflib.unified_diff(_lines(before), _lines(after), _title(name, before), _title(name, after), lineterm="")
    )
    for line in lines:
        heading = line.startswith(("+++", "---"))
        screen.line(line, "bold" if heading else _STYLES.get(line[:1]))
    if not lines:
        same = before.revision.revision, after.revision.revision
        screen.line(f"revisions {same[0]} and {same[1]} of {name} are equal")


def _show_warnings(screen: Screen, warnings: Iterable[object]) -> None:
    for warning in warnings:
        screen.line(f"  note: {warning}", "yellow")


def _headline(plan: FlowPlan) -> str:
    nodes = sum(component.node_count for component in plan.components)
    size = size_text(nodes, len(plan.components))
    if not plan.valid:
        return f"{plan.flow_id} would be refused: {counted(len(plan.violations), 'fault')}"
    if plan.standing_revision is None:
        return f"{plan.flow_id} would be a new flow: {size}"
    if not plan.changed:
        return f"{plan.flow_id} would stay as it is: revision {plan.standing_revision}, {size}"
    return f"{plan.flow_id} would get revision {plan.standing_revision + 1}: {size}"


def _waves(component: ComponentWaves) -> list[tuple[str, str, str, str]]:
    rows = []
    for place, wave in enumerate(component.waves):
        named = ", ".join(wave.nodes[:_NODES_SHOWN])
        rest = wave.node_count - min(_NODES_SHOWN, len(wave.nodes))
        more = f" and {rest} more" if rest > 0 else ""
        rows.append((component.component_id, str(place), str(wave.node_count), named + more))
    return rows


def _show_bounds(screen: Screen, plan: FlowPlan) -> None:
    screen.line()
    if plan.limits:
        screen.line("limits that will apply:")
        for limit in plan.limits:
            subject = f" {limit.subject}" if limit.subject else ""
            screen.line(f"  {limit.limit}{subject} = {limit.allowed}: {limit.message}", "yellow")
    else:
        screen.line("no limit will apply")
    if plan.begins_on:
        screen.line(f"begins on {plan.begins_on}")
    if plan.next_times:
        screen.line("next times:")
        for planned in plan.next_times:
            screen.line(f"  {iso(planned)}")
    elif not plan.begins_on:
        screen.line("no more times are planned")


def _changed_lines(diff: FlowDiff) -> list[str]:
    """Return one line per difference, beginning with +, - or ~."""
    lines = []
    for node in diff.nodes:
        if node.fields:
            lines += [
                f"~ node {node.node_id}: {each.path} {_shown(each.before_json)} -> {_shown(each.after_json)}"
                for each in node.fields
            ]
        else:
            lines.append(f"{'+' if node.after_json else '-'} node {node.node_id}")
    for edge in diff.edges:
        sign = "+" if edge.kind == "added" else "-"
        lines.append(f"{sign} edge {edge.source}.{edge.source_handle} -> {edge.target}.{edge.target_handle}")
    lines += [f"~ {each.path} {_shown(each.before_json)} -> {_shown(each.after_json)}" for each in diff.settings]
    if diff.nodes_reordered:
        lines.append("~ order of nodes")
    if diff.edges_reordered:
        lines.append("~ order of edges")
    return lines


def _shown(value_json: str) -> str:
    if not value_json:
        return "unset"
    return value_json if len(value_json) <= _VALUE_SHOWN else value_json[:_VALUE_SHOWN] + "..."


def _lines(definition: RevisionDefinition) -> list[str]:
    config = definition.config
    labels = {"labels": dict(definition.revision.labels)} if definition.revision.labels else {}
    weather = {key: value for key, value in config.items() if key != "labels"} | labels
    return json.dumps(weather, indent=2, sort_keys=True, ensure_ascii=False).splitlines()


def _title(name: str, definition: RevisionDefinition) -> str:
    revision = definition.revision
    made = f" {iso(revision.created_at)}" if revision.created_at else ""
    note = f": {revision.note}" if revision.note else ""
    return f'{name} revision {revision.revision}{made} by "{revision.by}"{note}'
