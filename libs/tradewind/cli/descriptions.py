"""Cycles, node tasks and log lines in words."""

from datetime import timedelta

from tradewind.cli.plain import to_json
from tradewind.cli.screen import STYLES, Format, Screen, counted, iso, length, planned
from tradewind.client import (
    CycleDescription,
    CycleRecord,
    CycleStatistics,
    ItemCounts,
    LogLine,
    NodeTaskRecord,
    NodeTaskStatus,
    Rerun,
    StatusCounts,
    StopRecord,
    WatchedTask,
)

_FORMS = 5
"""How many items of a list are shown with what they ask."""
_LEVEL_STYLES = {"debug": "dim", "warning": "yellow", "error": "red", "critical": "bold red"}


def cycle_text(cycle: CycleRecord, statistics: CycleStatistics | None = None) -> str:
    """Return `3 completed in 0.4 s (9 completed)`."""
    status = "waiting" if statistics is not None and statistics.waiting and not cycle.ended else cycle.status
    text = f"{cycle.cycle}{f' run {cycle.run}' if cycle.run else ''} {status}"
    if cycle.seconds is not None:
        text += f" in {length(cycle.seconds)}"
    counts = _statistics_text(statistics) if statistics is not None and not cycle.ended else counts_text(cycle.counts)
    # The reason of a cycle that ended badly already has these counts.
    if counts and not (cycle.ended and cycle.reason):
        text += f" ({counts})"
    return text + (f": {cycle.reason}" if cycle.reason else "")


def outcome_line(cycle: CycleRecord) -> str:
    """Return `momentum cycle 3 completed in 0.4 s (9 completed)`."""
    return f"{cycle.flow_id} cycle {cycle_text(cycle)}"


def counts_text(counts: StatusCounts) -> str:
    """Return `7 completed, 2 skipped`."""
    numbers = {
        "completed": counts.completed,
        "failed": counts.failed,
        "terminated": counts.terminated,
        "skipped": counts.skipped,
        "running": counts.running,
        "pending": counts.pending,
        "suspended": counts.suspended,
    }
    return ", ".join(f"{number} {status}" for status, number in numbers.items() if number)


def show_cycle(screen: Screen, described: CycleDescription) -> None:
    """Print a cycle and its nodes."""
    screen.line(f"{described.cycle.flow_id} cycle {cycle_text(described.cycle, described.statistics)}")
    _show_facts(screen, described.cycle)
    if described.gone:
        screen.line(described.gone, "yellow")
        return
    screen.line()
    screen.table(
        ["NODE", "TYPE", "STATUS", "ATTEMPT", "WORKER", "TOOK", "NOTE"],
        [
            (
                node.node_id,
                node.node_type,
                node.status,
                str(node.attempt or ""),
                node.worker_id,
                _duration_text(node),
                note(node),
            )
            for node in described.nodes
        ],
    )
    for node in described.nodes:
        _show_form(screen, node)
        if node.items is not None and not node.status.ended:
            screen.line()
            command = f"tradewind cycle show {node.flow_id} {node.cycle} --items {node.node_id}"
            screen.line(f"items of {node.node_id}, and what they ask: {command}", "dim")


def _show_facts(screen: Screen, cycle: CycleRecord) -> None:
    """Print how a cycle began, for what, with which inputs, who stopped it, and the result that was set."""
    if cycle.start_time is not None:
        late = cycle.start_time - (cycle.planned_time or cycle.start_time) >= timedelta(seconds=1)
        begun = f"{cycle.origin}, planned for {planned(cycle.planned_time)}" if late else cycle.origin
        screen.line(f"started {screen.when(cycle.start_time)} by {begun}, revision {cycle.revision}", "dim")
    if cycle.parent is not None:
        parent = cycle.parent
        screen.line(f"runs for node {parent.node_id} of {parent.flow_id} cycle {parent.cycle} run {parent.run}", "dim")
    if cycle.rerun is not None:
        screen.line(_rerun_text(cycle, cycle.rerun), "dim")
    if cycle.phase and not cycle.ended:
        screen.line(f"phase {cycle.phase}", "dim")
    if cycle.stop is not None:
        screen.line(f"stopped {stop_text(screen, cycle.stop)}", "yellow")
    if cycle.inputs_json:
        screen.line(f"inputs {cycle.inputs_json}")
    if cycle.result_json:
        screen.line(f"result {cycle.result_json}")


def _show_form(screen: Screen, node: NodeTaskRecord) -> None:
    """Print what a person is asked, if anything, and how to answer."""
    form = node.wait.form if node.wait is not None else None
    if form is None:
        return
    name = node.node_id if node.item is None else f"{node.node_id}:{node.item}"
    command = f"tradewind cycle approve {node.flow_id} {node.cycle} {name}"
    screen.line()
    screen.line(f"{name} asks: {form.get('title', '')}", "yellow")
    if form.get("description"):
        screen.line(f"  {form['description']}")
    for field in form.get("fields", ()):
        words = f"  {field['name']}: {field['type']}" + (", required" if field.get("required") else "")
        if field.get("choices"):
            words += f", one of {', '.join(to_json(choice) for choice in field['choices'])}"
        screen.line(words + (f" ({field['title']})" if field.get("title") else ""))
    screen.line(f"  answer it with: {command} [--reject] [--value NAME=VALUE]", "dim")


def _rerun_text(cycle: CycleRecord, rerun: Rerun) -> str:
    kept = f"{rerun.kept_nodes} of {cycle.node_count} results"
    text = f'run {cycle.run} by "{rerun.by}", keeps {kept} of run {rerun.source_run}'
    text += f", from {', '.join(rerun.from_nodes)}" if rerun.from_nodes else ""
    return text + (f": {rerun.reason}" if rerun.reason else "")


def note(node: NodeTaskRecord) -> str:
    """Return one line on a node task: why it failed, waits, stops or was skipped, its result's source or progress."""
    if node.error is not None:
        return node.error.line
    if node.reason:
        return node.reason
    if node.stop_by and not node.status.ended:
        return f"stopping: {_stop_request(node)}"
    if node.items is not None:
        return items_text(node.items)
    if node.cached_in:
        return f"cached in {node.cached_in}"
    if node.sub_flow is not None:
        return f"ran cycle {node.sub_flow.cycle} of flow {node.sub_flow.flow_id}"
    if node.kept_from:
        return f"kept from run {node.kept_from.split(':')[2]}"
    return "" if node.status.ended else _progress_text(node)


def _stop_request(node: NodeTaskRecord) -> str:
    """Return why and by whom a node task was asked to stop."""
    return ", ".join(filter(None, (node.stop_reason, f'by "{node.stop_by}"')))


def items_text(items: ItemCounts) -> str:
    """Return `37 of 100 items done, 4 open, 1 failed`."""
    text = f"{items.ended} of {items.total} items done"
    for number, state in ((items.open, "open"), (items.failed, "failed"), (items.cancelled, "cancelled")):
        text += f", {number} {state}" if number else ""
    return text


def show_items(screen: Screen, items: list[NodeTaskRecord]) -> None:
    """Print the items of a mapped node."""
    screen.table(
        ["ITEM", "STATUS", "ATTEMPT", "WORKER", "TOOK", "NOTE"],
        [
            (str(item.item), item.status, str(item.attempt or ""), item.worker_id, _duration_text(item), note(item))
            for item in items
        ],
    )
    asking = [item for item in items if item.wait is not None and item.wait.form is not None]
    for item in asking[:_FORMS]:
        _show_form(screen, item)


def show_node_task(screen: Screen, node: NodeTaskRecord) -> None:
    """Print everything about a node task."""
    facts = [
        ("node task", node.node_task_id),
        ("type", node.node_type),
        ("status", node.status),
        ("attempt", str(node.attempt or "")),
        (
            "failed",
            f"{node.failures} of {node.max_attempts} attempts" if node.failures and node.max_attempts > 1 else "",
        ),
        ("next attempt", screen.when(node.retry_at)),
        ("worker", node.worker_id),
        ("waits for", f'signal "{node.wait.signal}"' if node.wait is not None and node.wait.signal else ""),
        ("waits until", screen.when(node.wait.until) if node.wait is not None else ""),
        ("resumed", _resumed(screen, node)),
        ("runs", f"cycle {node.sub_flow.cycle} of flow {node.sub_flow.flow_id}" if node.sub_flow else ""),
        ("items", items_text(node.items) if node.items is not None else ""),
        ("cached", f"in {node.cached_in}" if node.cached_in else ""),
        ("progress", _progress_text(node) if node.status is not NodeTaskStatus.COMPLETED else ""),
        ("reason", node.reason),
        ("stop requested", _stop_request(node) if node.stop_by else ""),
        ("registered", screen.when(node.registered_at)),
        ("started", screen.when(node.started_at)),
        ("ended", screen.when(node.ended_at)),
        ("took", _duration_text(node)),
        ("config", node.config_json if node.config_json != "{}" else ""),
    ]
    facts += [("output", f"{handle} = {to_json(value)}") for handle, value in node.outputs.items()]
    screen.facts(facts)
    if node.error is not None:
        screen.line(f"error: {node.error}", "red")
        if node.error.traceback:
            screen.line(node.error.traceback.rstrip(), "dim")
    for past in node.history:
        worker = f" on {past.worker_id}" if past.worker_id else ""
        screen.line(f"attempt {past.attempt}{worker} ended {screen.when(past.ended_at)} with {past.code}", "dim")
    if node.last_error is not None:
        screen.line(f"last failed attempt: {node.last_error}", "yellow")
        if node.last_error.traceback:
            screen.line(node.last_error.traceback.rstrip(), "dim")


def _resumed(screen: Screen, node: NodeTaskRecord) -> str:
    resumed = node.resumed
    if resumed is None:
        return ""
    what = f'signal "{resumed.signal}" of "{resumed.by}"' if resumed.signal else "timer"
    return f"by {what}, {screen.when(resumed.at)}" + (f": {to_json(resumed.payload)}" if resumed.signal else "")


def show_log_line(screen: Screen, line: LogLine) -> None:
    """Print a log line; further lines of its message are indented, so that they do not look like others."""
    at = iso(line.created_at) if line.created_at is not None else "-"
    author = line.node_id or line.source
    message = line.message.replace("\n", "\n  ")
    text = f"{at}  {line.cycle}  {line.level.upper():<8} {author}: {message}"
    screen.line(text, _LEVEL_STYLES.get(line.level))


def _progress_text(node: NodeTaskRecord) -> str:
    """Return the last progress that was sent: what a node reports just before its end is not."""
    if not (node.progress or node.message or node.current_step):
        return ""
    step = f"[{node.current_step}]" if node.current_step else ""
    return " ".join(part for part in (f"{node.progress} %", step, node.message) if part)


def _duration_text(node: NodeTaskRecord) -> str:
    if node.started_at is None or node.ended_at is None:
        return ""
    return length((node.ended_at - node.started_at).total_seconds())


def stop_text(screen: Screen, stop: StopRecord | None) -> str:
    """Return when, by whom and why a stop was asked for; "" if nobody did."""
    if stop is None:
        return ""
    return f'{screen.when(stop.at)} by "{stop.by}"' + (f": {stop.reason}" if stop.reason else "")


def show_stopped(screen: Screen, output: Format, name: str, task: NodeTaskRecord) -> None:
    """Print the status of a node task that was to stop, and whether it has yet to do so."""
    text = f"{name} is {task.status}" + ("" if task.status.ended else " and was asked to stop")
    screen.result(output, task, text, STYLES.get(task.status))


def _statistics_text(statistics: CycleStatistics) -> str:
    done = statistics.completed_nodes + statistics.error_nodes + statistics.skipped_nodes + statistics.terminated_nodes
    text = f"{done} of {counted(statistics.total_nodes, 'node')} done"
    if statistics.running_nodes:
        text += f", {statistics.running_nodes} running"
    if statistics.suspended_nodes:
        text += f", {statistics.suspended_nodes} suspended"
    if statistics.error_nodes:
        text += f", {statistics.error_nodes} failed"
    return text


def show_task_event(screen: Screen, task: WatchedTask) -> None:
    """Print what happened to a task: `2026-11-21T07:25:10.123Z  running: attempt 1 on w1`."""
    if task.gap:
        screen.line("some earlier events are missing", "yellow")
    at = iso(task.happened_at) if task.happened_at else " " * len("2026-11-21T07:25:10.123Z")
    event = task.happened or task.status
    details = {
        "running": f"attempt {task.attempt} on {task.worker_id}" if task.worker_id else "",
        "progress": " ".join(filter(None, (f"{task.progress} %", task.current_step, task.message))),
        "stopping": task.stop_reason,
        "retrying": task.reason or str(task.last_error or ""),
        "completed": to_json(task.outputs),
        "failed": str(task.error or ""),
    }.get(event, task.reason)
    screen.line(f"{at}  {event}: {details}" if details else f"{at}  {event}", STYLES.get(task.status))
