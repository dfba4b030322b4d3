"""Which node tasks have their events kept, in memory."""

from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.task_event import MAX_WATCHED, WatchOutcome
from tradewind.node_task_manager.stores.memory.claiming import MemoryClaiming
from tradewind.node_task_manager.stores.memory.records import run_of


class MemoryWatching(MemoryClaiming):
    """Keeps events of node tasks of flows that somebody has watched."""

    async def watch_task(self, run: RunName, component_id: str, within_run: str) -> WatchOutcome:
        task_id = run.task_id(within_run)
        if (str(run), component_id) not in self._components:
            return WatchOutcome.UNKNOWN
        if self._has_ended(task_id):
            return WatchOutcome.ENDED
        if task_id in self._watched:
            return WatchOutcome.WATCHED
        others = [each for each, owner in self._watched.items() if (run_of(each), owner) == (str(run), component_id)]
        if sum(not self._has_ended(each) for each in others) >= MAX_WATCHED:
            return WatchOutcome.FULL
        self._watched[task_id] = component_id
        return WatchOutcome.NEW

    def _has_ended(self, task_id: str) -> bool:
        task = self._tasks.get(task_id)
        return task is not None and task.status.terminal
