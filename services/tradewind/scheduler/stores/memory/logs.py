"""The scheduler's log lines in memory."""

from tradewind.scheduler.domain.log_line import LogLine
from tradewind.scheduler.stores.memory.data import Data


class MemoryLogs:
    """Implements LogLines."""

    def __init__(self, data: Data) -> None:
        self._data = data

    async def read(self, flow_id: str, cycle: int) -> list[LogLine]:
        self._data.now()
        flow = self._data.flows.get(flow_id)
        return list(flow.logs.get(cycle, ())) if flow else []
