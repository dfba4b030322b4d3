"""Where a flow stands, in words."""

from collections.abc import Mapping
from typing import Any

from tradewind.cli.descriptions import cycle_text, stop_text
from tradewind.cli.screen import Screen, counted
from tradewind.client import CycleStatistics, FlowDescription, Pause

_KEEP_CYCLES = 100
"""How many ended cycles are kept unless the flow says otherwise."""


def show_flow(screen: Screen, described: FlowDescription, statistics: CycleStatistics | None) -> None:
    """Print where a flow stands."""
    flow, cycle = described.flow, described.current_cycle
    config = flow.config if isinstance(flow.config, dict) else {}
    facts = [
        ("flow", flow.flow_id),
        ("status", flow.status),
        ("schedule", _schedule_text(config, flow.begins_on)),
        ("paused", _pause_text(screen, flow.pause)),
        ("stopped", stop_text(screen, flow.stop)),
        ("kept", _retention_text(config)),
        ("nodes", f"{flow.node_count} in {counted(len(flow.components), 'component')}"),
        ("revision", str(flow.revision)),
        ("labels", ", ".join(f"{key}={value}" for key, value in sorted(flow.labels.items()))),
        ("next cycle", screen.when(flow.next_execution)),
        ("running", f"{flow.running_cycles} cycles" if flow.running_cycles > 1 else ""),
    ]
    if cycle is not None:
        facts.append(("last cycle", cycle_text(cycle, statistics)))
    screen.facts(facts)


def size_text(nodes: int, components: int) -> str:
    """Return `9 nodes in 2 components`."""
    return f"{counted(nodes, 'node')} in {counted(components, 'component')}"


def _schedule_text(config: Mapping[str, Any], begins_on: str) -> str:
    """Return `every 5 s`, `runs once`, `30 9 * * 1-5 (UTC)` or `on event "price"`, with any bounds and jitter."""
    schedule = config.get("schedule") or {"interval": config.get("interval")}
    more = [f"{name} {schedule[name]}" for name in ("start", "end", "jitter", "max_cycles") if name in schedule]
    if "cron" in schedule:
        text = f"{schedule['cron']} ({schedule.get('zone', 'UTC')})"
    elif "at" in schedule:
        text = f"at {len(schedule['at'])} times" if len(schedule["at"]) > 1 else f"at {schedule['at'][0]}"
    elif begins_on:
        text = f"on {begins_on}"
    else:
        text = _interval_text(schedule["interval"])
    return ", ".join([text, *more])


def _retention_text(config: Mapping[str, Any]) -> str:
    """Return how long ended cycles stay on record."""
    text = f"the newest {config.get('keep_cycles', _KEEP_CYCLES)} cycles"
    if "keep_for" not in config:
        return text
    period = config["keep_for"]
    return f"{text}, for {period} s" if isinstance(period, int | float) else f"{text}, for {period}"


def _interval_text(interval: object) -> str:
    if interval in (0, "0"):
        return "runs once"
    return f"every {interval} s" if isinstance(interval, int | float) else f"every {interval}"


def _pause_text(screen: Screen, pause: Pause | None) -> str:
    if pause is None:
        return ""
    return f"{screen.when(pause.paused_at)} by {pause.by}" + (f": {pause.note}" if pause.note else "")
