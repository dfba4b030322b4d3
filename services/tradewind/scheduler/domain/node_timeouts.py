"""A node's time limits, as a flow defines them."""

from typing import NamedTuple

from tradewind.scheduler.domain.fields import Fields
from tradewind.scheduler.domain.intervals import format_duration
from tradewind.scheduler.domain.node_definition import SCHEDULE_TO_START_MS, START_TO_CLOSE_MS
from tradewind.server.quoting import quoted

_FIELDS = ("schedule_to_start", "start_to_close", "total", "heartbeat")
_SHORTEST_SILENCE_MS = 1000


class NodeTimeouts(NamedTuple):
    """Limits in ms, 0 for none: wait for a worker, one attempt, total from first ready to the end, and silence."""

    schedule_to_start_ms: int
    start_to_close_ms: int
    total_ms: int = 0
    heartbeat_ms: int = 0


def read_timeouts(node: Fields) -> NodeTimeouts:
    """Read the time limits of a node: those of its own fields, and those under `timeouts`."""
    schedule_to_start_ms = node.duration("schedule_to_start", SCHEDULE_TO_START_MS, least_ms=1)
    start_to_close_ms = node.duration("timeout", START_TO_CLOSE_MS)
    further = node.nested("timeouts")
    if further is None:
        return NodeTimeouts(schedule_to_start_ms, start_to_close_ms)
    further.refuse_unknown(_FIELDS)
    for name, other in (("schedule_to_start", "schedule_to_start"), ("start_to_close", "timeout")):
        if further.get(name) is not None and node.get(other) is not None:
            further.fault(name, f"is given twice: here and as {quoted(other)} of the node; leave one out")
    schedule_to_start_ms = further.duration("schedule_to_start", schedule_to_start_ms, least_ms=1)
    start_to_close_ms = further.duration("start_to_close", start_to_close_ms)
    heartbeat_ms = further.duration("heartbeat", 0)
    if 0 < heartbeat_ms < _SHORTEST_SILENCE_MS:
        further.fault("heartbeat", f"must be 0 for none, or at least 1s, is {format_duration(heartbeat_ms)}")
    return NodeTimeouts(schedule_to_start_ms, start_to_close_ms, further.duration("total", 0), heartbeat_ms)
