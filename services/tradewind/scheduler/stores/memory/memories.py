"""The memory of flows, in memory."""

from tradewind.scheduler.domain.chain_state import UpdateOutcome, UpdateResult
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.memory import Memory
from tradewind.scheduler.stores.memory.data import Data


class MemoryFlowMemories:
    """Implements FlowMemories."""

    def __init__(self, data: Data) -> None:
        self._data = data

    async def load(self, flow_id: str) -> Memory | None:
        flow = self._data.flows.get(flow_id)
        return flow.memory if flow and flow.status is not FlowStatus.DELETING else None

    async def try_save(self, flow_id: str, memory: Memory) -> UpdateResult:
        flow = self._data.flows.get(flow_id)
        if flow is None or flow.status is FlowStatus.DELETING:
            return UpdateResult(UpdateOutcome.MISSING)
        if flow.memory.version != memory.version - 1:
            return UpdateResult(UpdateOutcome.CONFLICT, flow.memory.version)
        flow.memory = Memory(dict(memory.variables), memory.version, memory.changes)
        return UpdateResult(UpdateOutcome.OK, memory.version)
