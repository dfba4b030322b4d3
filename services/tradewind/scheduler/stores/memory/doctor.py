"""What a doctor asks of a partition in memory."""

from collections.abc import Collection

from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.ports.doctor import PartitionReport
from tradewind.scheduler.stores.memory.data import Data
from tradewind.server.doctor import Examined
from tradewind.server.partitions import partition_of


class MemoryPartitionDoctor:
    """Implements PartitionDoctor, in one step. Nothing here is kept twice, so only other services can disagree."""

    def __init__(self, data: Data) -> None:
        self._data = data

    async def examine(
        self, partition: int, epoch: int, at: str, records: int, recheck: Collection[str] | None, mend: bool
    ) -> PartitionReport:
        now_ms = self._data.now()
        flows = [flow for flow in self._data.flows.values() if partition_of(flow.flow_id) == partition]
        running = tuple(
            (
                flow.flow_id,
                flow.schedule_epoch,
                max(0, now_ms - flow.next_execution_ms) if flow.next_execution_ms > 0 else 0,
            )
            for flow in flows
            if flow.status is FlowStatus.RUNNING and flow.next_execution_ms and flow.flow_id not in self._data.outbox
        )
        submitted = tuple(name for flow in flows for name in flow.open if flow.runs[name].state.submitted_ms)
        return PartitionReport(Examined(len(flows), (), ""), running, submitted)
