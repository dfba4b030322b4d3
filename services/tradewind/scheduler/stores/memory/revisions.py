"""Revisions of flows in memory."""

from collections import Counter
from dataclasses import replace

from tradewind.scheduler.domain.revision import Revision
from tradewind.scheduler.stores.memory.data import Data


class MemoryRevisions:
    """Implements Revisions."""

    def __init__(self, data: Data) -> None:
        self._data = data

    async def newest(self, flow_id: str, below: int, limit: int) -> list[Revision]:
        flow = self._data.flows.get(flow_id)
        if flow is None:
            return []
        open_runs = Counter(flow.runs[name].state.facts.revision for name in flow.open)
        numbers = sorted((number for number in flow.history if not below or number < below), reverse=True)
        return [replace(flow.history[number], open_runs=open_runs[number]) for number in numbers[:limit]]
