"""A node's time limits, as a flow defines them."""

from typing import Any, NamedTuple

from tradewind.scheduler.domain.fault_list import FaultList
from tradewind.scheduler.domain.fields import Fields
from tradewind.scheduler.domain.intervals import format_duration
from tradewind.scheduler.domain.node_definition import SCHEDULE_TO_START_MS, START_TO_CLOSE_MS
from tradewind.scheduler.domain.paths import join
from tradewind.server.quoting import quoted

_FIELDS = ("schedule_to_start", "start_to_close", "total", "heartbeat")
_SHORTEST_SILENCE_MS = 1000


class NodeTimeouts(NamedTuple):
    """Limits in ms, 0 for none: wait for a worker, one attempt, total from first ready to the end, and silence."""

    schedule_to_start_ms: int
    start_to_close_ms: int
    total_ms: int
    heartbeat_ms: int


def read_timeouts(item: dict[str, Any], fields: Fields, path: str, faults: FaultList) -> NodeTimeouts:
    """Read the time limits of the node at `path`, whose `fields` are those of `item`."""
    schedule_to_start_ms = fields.duration("schedule_to_start", SCHEDULE_TO_START_MS, least_ms=1)
    start_to_close_ms = fields.duration("timeout", START_TO_CLOSE_MS)
    given, at = fields.mapping("timeouts"), join(path, "timeouts")
    further = Fields(given, at, faults)
    further.refuse_unknown(_FIELDS)
    for name, other in (("schedule_to_start", "schedule_to_start"), ("start_to_close", "timeout")):
        if given.get(name) is not None and item.get(other) is not None:
            faults.add(join(at, name), f"is given twice: here and as {quoted(other)} of the node; leave one out")
    schedule_to_start_ms = further.duration("schedule_to_start", schedule_to_start_ms, least_ms=1)
    start_to_close_ms = further.duration("start_to_close", start_to_close_ms)
    heartbeat_ms = further.duration("heartbeat", 0)
    if 0 < heartbeat_ms < _SHORTEST_SILENCE_MS:
        faults.add(join(at, "heartbeat"), f"must be 0 for none, or at least 1s, is {format_duration(heartbeat_ms)}")
    return NodeTimeouts(schedule_to_start_ms, start_to_close_ms, further.duration("total", 0), heartbeat_ms)
