"""Where a flow stands, in words."""

from collections.abc import Mapping
from typing import Any

from tradewind.cli.descriptions import cycle_text, stop_text
from tradewind.cli.screen import Screen, counted, typed_length
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
        *_choices(config),
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


def _choices(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a flow says about its cycles, by the names of the fields; "" for what it leaves at the default."""
    failures, at_once = config.get("pause_after_failures"), config.get("max_running")
    return [
        ("description", config.get("description", "")),
        ("overlap", config.get("overlap", "")),
        ("failure policy", config.get("failure_policy", "")),
        ("on failure", ", ".join(config.get("on_failure", ()))),
        ("finally", ", ".join(config.get("finally", ()))),
        ("timeout", f"{_span(config['timeout'])} for a cycle" if "timeout" in config else ""),
        ("pause after", f"{counted(failures, 'failed cycle')} in a row" if failures else ""),
        ("max running", f"{counted(at_once, 'node')} at once, over all cycles" if at_once else ""),
    ]


def _schedule_text(config: Mapping[str, Any], begins_on: str) -> str:
    """Return `every 5s`, `30 9 * * 1-5 (UTC)` or `on event "price"`, and what else its schedule says."""
    schedule = config.get("schedule") or {"interval": config.get("interval")}
    more = [f"{name} {schedule[name]}" for name in ("start", "end", "max_cycles", "catch_up") if name in schedule]
    more += [f"{name} {_span(schedule[name])}" for name in ("jitter", "catch_up_window") if name in schedule]
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
    text = f"the newest {counted(config.get('keep_cycles', _KEEP_CYCLES), 'cycle')}"
    return f"{text}, for {_span(config['keep_for'])}" if "keep_for" in config else text


def _interval_text(interval: int | str) -> str:
    return f"every {_span(interval)}" if interval else "when called, or once when started"


def _span(length: int | str) -> str:
    """Return a length of time as people write it in a definition: `10m` for 600."""
    return length if isinstance(length, str) else typed_length(length)


def _pause_text(screen: Screen, pause: Pause | None) -> str:
    if pause is None:
        return ""
    return f'{screen.when(pause.paused_at)} by "{pause.by}"' + (f": {pause.note}" if pause.note else "")
