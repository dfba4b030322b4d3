"""Maps the events of a watch to messages, and reads where a watch is to go on."""

from collections.abc import Mapping

from tradewind.api.scheduler.v1 import cycle_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.rpc.cycle_mapping import fill_cycle
from tradewind.scheduler.use_cases.watch_flows import LastSeen
from tradewind.server.all_faults import require
from tradewind.server.faults import Violation


def event(state: ChainState) -> cycle_pb2.CycleEvent:
    """Return a change to a cycle as a message: the state after it."""
    # A store that has lost the end of a run may give its version out again, to another end.
    end = f"-{state.end_ms}" if state.end_ms else ""
    message = cycle_pb2.CycleEvent(event_id=f"{state.name}-{state.version}{end}")
    fill_cycle(message.cycle, state)
    return message


def last_seen(request: pb2.WatchFlowRequest) -> Mapping[str, LastSeen]:
    """Return the last state that the watcher has received, by flow. Raises InvalidInput with every fault."""
    found: dict[str, LastSeen] = {}
    faults: list[Violation] = []
    if request.after_event_ids and request.HasField("cycle"):
        faults.append(Violation("after_event_ids", "cannot be combined with `cycle`"))
    for place, event_id in enumerate(request.after_event_ids):
        path = f"after_event_ids[{place}]"
        try:
            last = _position(event_id)
        except ValueError:
            faults.append(Violation(path, f"{event_id[:200]!r} is not an event id from a watch"))
            continue
        flow_id = last.run.flow_id
        if flow_id not in request.flow_ids:
            faults.append(Violation(path, f"flow {flow_id!r} is not among `flow_ids`"))
        elif flow_id in found:
            faults.append(Violation(path, f"flow {flow_id!r} has more than one event id"))
        found[flow_id] = last
    require(faults)
    return found


def _position(event_id: str) -> LastSeen:
    """Return the state that an event id names. Raises ValueError for other text."""
    flow_and_cycle, _, place = event_id.rpartition(":")
    run, version, *end_ms = place.split("-", 2)
    return LastSeen(RunName.parse(f"{flow_and_cycle}:{run}"), int(version), int("".join(end_ms) or 0))
