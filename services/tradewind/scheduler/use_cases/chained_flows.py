"""Checks that a flow does not begin, by its own end, any of the flows whose ends begin it."""

from collections.abc import Sequence

from tradewind.scheduler.domain.flow_record import FlowRecord
from tradewind.scheduler.domain.schedule_definition import ScheduleDefinition
from tradewind.scheduler.ports.flows import FlowRecords
from tradewind.scheduler.use_cases.flow_paths import MAX_FLOWS, PathsFound, edges_from, path_back
from tradewind.server.faults import Violation
from tradewind.server.quoting import quoted

_PATH = "schedule.flow_finished.flow_ids"


async def chained_flows(flows: FlowRecords, flow_id: str, user_id: str, schedule: ScheduleDefinition) -> PathsFound:
    """Return the faults and warnings of the schedule that a flow of a user ("" for its owner) is to get.

    Follows `flow_finished` backwards through the schedules on record.
    """
    named_flows = schedule.on.flow_ids if schedule.on else ()
    if not named_flows:
        return PathsFound()
    before = await edges_from(flows, flow_id, user_id, named_flows, _flows_that_begin)
    faults: list[Violation] = []
    warnings: list[Violation] = []
    for place, source in enumerate(named_flows):
        if (found := path_back(flow_id, source, before.edges)) is not None:
            path_text = " -> ".join(reversed(found))
            message = f"a flow may not begin on its own end, neither directly nor through others: {path_text}"
            faults.append(Violation(f"{_PATH}[{place}]", message))
        elif source in before.unknown:
            message = f"flow {quoted(source)} is not registered; its ends begin nothing until it is"
            warnings.append(Violation(f"{_PATH}[{place}]", message))
        elif source in before.of_others:
            message = f"flow {quoted(source)} belongs to another user; only ends of the same user's flows count"
            warnings.append(Violation(f"{_PATH}[{place}]", message))
    if len(before.edges) > MAX_FLOWS:
        faults.append(Violation(_PATH, f"more than {MAX_FLOWS} flows lead to this one: make the chain shorter"))
    return PathsFound(tuple(faults), tuple(warnings))


def _flows_that_begin(record: FlowRecord) -> Sequence[str]:
    return record.schedule.on.flow_ids if record.schedule.on else ()
