"""Progress and log lines of attempts in memory."""

from collections.abc import Sequence

from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import NodeTask
from tradewind.node_task_manager.domain.task_event import TaskEventKind
from tradewind.node_task_manager.ports.reading import Line, Progress, StoredLine
from tradewind.node_task_manager.stores.memory.consequences import MemoryConsequences
from tradewind.node_task_manager.stores.memory.records import holds_lease
from tradewind.node_task_manager.stores.memory.replacing import replace


class MemoryProgress(MemoryConsequences):
    """Keeps what attempts report while they run, and returns their lines."""

    async def record(self, progress: Sequence[Progress], lines: Sequence[Line]) -> int:
        kept = 0
        updated: dict[str, NodeTask] = {}
        for entry in progress:
            task = self._tasks.get(entry.task_id)
            if holds_lease(task, entry.nonce):
                kept += 1
                self._record_heartbeat(task)
                if entry.progress >= task.progress:
                    task = replace(task, progress=entry.progress, message=entry.message, step=entry.step)
                    self._tasks[task.task_id] = updated[task.task_id] = task
        for task in updated.values():
            self._add_event(task, TaskEventKind.PROGRESS)
        for line in lines:
            task = self._tasks.get(line.task_id)
            if task is not None and line.nonce in (task.nonce, self._private[line.task_id].settled):
                kept += 1
                within = task.started_at <= line.at <= self._clock()
                self._log(line if within else replace(line, at=self._clock()))
        return kept

    async def lines(self, run: RunName, after: str, limit: int) -> list[StoredLine]:
        lines = self._logs.get((run.ad_hoc or run.flow_id, run.cycle), [])
        past = next((at + 1 for at, line in enumerate(lines) if line.log_id == after), 0)
        return lines[past : past + limit]
