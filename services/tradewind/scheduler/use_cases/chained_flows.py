"""Checks which flows begin a flow by their ends: that none of them is begun by it in turn."""

from collections.abc import Sequence

from tradewind.scheduler.domain.paths import quoted
from tradewind.scheduler.domain.schedule_definition import ScheduleDefinition
from tradewind.scheduler.ports.flows import FlowRecords
from tradewind.scheduler.use_cases.sub_flow_paths import PathsFound, path_back
from tradewind.server.faults import Violation

_PATH = "schedule.flow_finished.flow_ids"
_MOST_FLOWS = 1000


class ChainedFlows:
    """Follows `flow_finished` backwards through the schedules on record."""

    def __init__(self, flows: FlowRecords) -> None:
        self._flows = flows

    async def __call__(self, flow_id: str, schedule: ScheduleDefinition) -> PathsFound:
        """Return what is found of a schedule that is to be that of a flow."""
        named = schedule.on.flow_ids if schedule.on else ()
        if not named:
            return PathsFound()
        before: dict[str, Sequence[str]] = {flow_id: named}
        unknown = await self._follow(named, before)
        faults: list[Violation] = []
        warnings: list[Violation] = []
        for place, source in enumerate(named):
            if (found := path_back(flow_id, source, before)) is not None:
                way = " -> ".join(reversed(found))
                message = f"a flow may not begin on its own end, neither directly nor through others: {way}"
                faults.append(Violation(f"{_PATH}[{place}]", message))
            elif source in unknown:
                message = f"no flow {quoted(source)} is registered; it begins nothing until there is one"
                warnings.append(Violation(f"{_PATH}[{place}]", message))
        if len(before) > _MOST_FLOWS:
            faults.append(Violation(_PATH, f"more than {_MOST_FLOWS} flows stand before it: make the chain shorter"))
        return PathsFound(tuple(faults), tuple(warnings))

    async def _follow(self, named: Sequence[str], before: dict[str, Sequence[str]]) -> set[str]:
        """Add to `before` by which flows each is begun, as far as can be reached; return those that are unknown."""
        unknown: set[str] = set()
        level = [each for each in named if each not in before]
        while level and len(before) <= _MOST_FLOWS:
            for each, record in zip(level, await self._flows.find(level), strict=True):
                on = record.schedule.on if record else None
                before[each] = on.flow_ids if on else ()
                if record is None:
                    unknown.add(each)
            level = sorted({source for each in level for source in before[each]} - before.keys())
        return unknown
