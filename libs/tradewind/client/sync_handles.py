"""The handles of the client for code without an event loop."""

from tradewind.client.ad_hoc_handles import BatchHandle, TaskHandle
from tradewind.client.batches import BatchRecord
from tradewind.client.cycles import CycleRecord
from tradewind.client.handles import CycleHandle, FlowHandle
from tradewind.client.node_tasks import NodeTaskRecord
from tradewind.client.sync_face import SyncFace, faces, iterates, waits, waits_for


class SyncCycleHandle(SyncFace[CycleHandle]):
    """A cycle of a flow: CycleHandle with methods that wait."""

    @property
    def flow_id(self) -> str:
        """The id of the flow."""
        return self._inner.flow_id

    @property
    def cycle(self) -> int:
        """The number of the cycle."""
        return self._inner.cycle

    @property
    def run(self) -> int | None:
        """Its run; None for the latest."""
        return self._inner.run

    @property
    def record(self) -> CycleRecord | None:
        """Its last known state."""
        return self._inner.record

    @property
    def warnings(self) -> tuple[str, ...]:
        """Inputs that no entry node takes."""
        return self._inner.warnings

    get = waits(CycleHandle.get)
    stop = waits(CycleHandle.stop)
    describe = waits(CycleHandle.describe)
    watch = iterates(CycleHandle.watch)
    watch_node = iterates(CycleHandle.watch_node)
    logs = iterates(CycleHandle.logs)
    wait = waits(CycleHandle.wait)
    result = waits(CycleHandle.result)


class SyncFlowHandle(SyncFace[FlowHandle]):
    """A flow: FlowHandle with methods that wait."""

    @property
    def flow_id(self) -> str:
        """The id of the flow."""
        return self._inner.flow_id

    register = waits(FlowHandle.register)
    describe = waits(FlowHandle.describe)
    start = waits(FlowHandle.start)
    stop = waits(FlowHandle.stop)
    delete = waits(FlowHandle.delete)
    update = waits(FlowHandle.update)
    revisions = iterates(FlowHandle.revisions)
    roll_back = waits(FlowHandle.roll_back)
    cycles = iterates(FlowHandle.cycles)
    watch = iterates(FlowHandle.watch)
    logs = iterates(FlowHandle.logs)

    run = waits_for(FlowHandle.run, SyncCycleHandle)
    cycle = faces(FlowHandle.cycle, SyncCycleHandle)


class SyncTaskHandle(SyncFace[TaskHandle]):
    """An ad-hoc task: TaskHandle with methods that wait."""

    @property
    def task_id(self) -> str:
        """The id of the task."""
        return self._inner.task_id

    @property
    def record(self) -> NodeTaskRecord | None:
        """Its last known state."""
        return self._inner.record

    @property
    def warnings(self) -> tuple[str, ...]:
        """What may keep it waiting."""
        return self._inner.warnings

    get = waits(TaskHandle.get)
    progress = waits(TaskHandle.progress)
    watch = iterates(TaskHandle.watch)
    logs = iterates(TaskHandle.logs)
    cancel = waits(TaskHandle.cancel)
    wait = waits(TaskHandle.wait)
    result = waits(TaskHandle.result)


class SyncBatchHandle(SyncFace[BatchHandle]):
    """A batch: BatchHandle with methods that wait."""

    @property
    def batch_id(self) -> str:
        """The id of the batch."""
        return self._inner.batch_id

    @property
    def record(self) -> BatchRecord | None:
        """Its last known state."""
        return self._inner.record

    @property
    def warnings(self) -> tuple[str, ...]:
        """What may keep it waiting."""
        return self._inner.warnings

    get = waits(BatchHandle.get)
    progress = waits(BatchHandle.progress)
    watch = iterates(BatchHandle.watch)
    items = iterates(BatchHandle.items)
    logs = iterates(BatchHandle.logs)
    cancel = waits(BatchHandle.cancel)
    delete = waits(BatchHandle.delete)
    wait = waits(BatchHandle.wait)
    result = waits(BatchHandle.result)
