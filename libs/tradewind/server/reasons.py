"""Why something waits, or why it ended as it did: a stable code, a sentence, and the facts behind it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

Fact = str | int | float | bool | Sequence[str] | Sequence[Mapping[str, "Fact"]]

CODES = (
    *("run_ended", "completed", "failed", "retry_budget_spent", "skipped", "stopped"),
    "store_takes_no_writes",
    *("deleting", "paused_after_failures", "paused", "not_started", "schedule_over", "time_zone_unknown"),
    "last_cycle_failed",
    *("stopping", "waits_for_node_task_manager", "withheld", "suspended", "waits_for_flow"),
    *("retry_at", "waits_for_same_work", "waits_for_node", "waits_for_items", "no_live_worker"),
    *("limit_full", "rate_limited", "workers_busy", "queued"),
    *("worker_unconfirmed", "running", "items_open"),
    *("tick_queued", "tick_skipped", "tick_dropped", "tick_missed", "outside_window", "cycle_running"),
    *("backfilling", "next_tick", "waits_for_event"),
)
"""Every code, most decisive first: reasons are listed in this order. docs/explain.md lists them with their facts."""
_RANKS = {code: rank for rank, code in enumerate(CODES)}
_MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class Reason:
    """`code` is one of CODES; in the facts, times are ISO 8601 text in UTC, and durations are in seconds."""

    code: str
    sentence: str
    facts: Mapping[str, Fact] = field(default_factory=dict)


def ordered(reasons: Iterable[Reason]) -> list[Reason]:
    """Return reasons, most decisive first."""
    return sorted(reasons, key=lambda reason: _RANKS.get(reason.code, 0))


def iso(ms: int) -> str:
    """Return a time in epoch milliseconds as text; "" for 0."""
    if not ms:
        return ""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def store_takes_no_writes(reason: str) -> list[Reason]:
    """Say that the store refuses to write, so that nothing can begin or end; nothing if `reason` is empty."""
    if not reason:
        return []
    return [
        Reason(
            "store_takes_no_writes",
            f"{reason}; nothing can begin or end until it accepts writes again",
            {"why": reason},
        )
    ]


def waits_for_nodes(sources: Mapping[str, str]) -> Reason:
    """Say which nodes it waits for, each with its status, which is "" when not known."""
    shown = _list([f'"{source}"' for source in sources])
    sentence = f"waits for node{'s' if len(sources) > 1 else ''} {shown}"
    if len(sources) == 1 and (status := next(iter(sources.values()))):
        sentence += f", which is {status}"
    return Reason(
        "waits_for_node", sentence, {"nodes": [{"node_id": node, "status": status} for node, status in sources.items()]}
    )


def no_live_worker(
    node_type: str,
    draining: Sequence[str] = (),
    last_seen: Mapping[str, int] | None = None,
    last_worker: str = "",
    until: str = "",
) -> Reason:
    """Say that nobody takes a ready task.

    The workers that offer the type are draining, or were last seen at a time in ms; or the last connected worker
    was connected until a time, given as text.
    """
    sentence = f'no live worker offers node type "{node_type}"'
    seen = last_seen or {}
    if draining:
        sentence += f"; {_list(draining)} {_offer(len(draining))} it, but {_are(len(draining))} draining"
    if last_worker:
        sentence += f"; {last_worker} offered it, and was connected until {until}"
    elif seen:
        latest = max(seen, key=lambda worker: seen[worker])
        sentence += f"; {latest} offered it, and was last heard from at {iso(seen[latest])}"
    facts: dict[str, Fact] = {
        "node_type": node_type,
        "draining": list(draining),
        "gone": [{"worker_id": worker, "last_heartbeat": iso(seen_ms)} for worker, seen_ms in sorted(seen.items())],
        "last_worker": last_worker,
        "until": until,
    }
    return Reason("no_live_worker", sentence, facts)


def workers_busy(
    node_type: str, workers: int = 0, slots: int = 0, free: int = 0, not_connected: Sequence[str] = ()
) -> Reason:
    """Say that workers for the type have no room, as far as known; some may be alive on record, but `not_connected`."""
    sentence = f'waits for a worker that offers "{node_type}" to have room'
    if workers:
        sentence += (
            f": {workers} {_offer(workers)} it, with {slots} slots, of which {free} were free at the last heartbeats"
        )
    if free:
        sentence += "; if a worker has room but gets nothing, it is not connected for this type: see its log"
    if not_connected:
        sentence += (
            f"; {_list(not_connected)} {_offer(len(not_connected))} it, but {_are(len(not_connected))} not connected"
        )
    facts: dict[str, Fact] = {
        "node_type": node_type,
        "workers": workers,
        "slots": slots,
        "free_slots": free,
        "not_connected": list(not_connected),
    }
    return Reason("workers_busy", sentence, facts)


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:_MAX_NAMED]) + (f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else "")


def _offer(count: int) -> str:
    return "offer" if count > 1 else "offers"


def _are(count: int) -> str:
    return "are" if count > 1 else "is"
