"""Log lines in memory."""

import itertools
from collections.abc import Callable

from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.node_task import NodeTask, TaskError
from tradewind.node_task_manager.ports.reading import Line, StoredLine
from tradewind.node_task_manager.stores.memory.limiting import MemoryLimiting
from tradewind.node_task_manager.stores.memory.records import task_name
from tradewind.server.durations import duration_text


class MemoryLogs(MemoryLimiting):
    """Keeps the lines of cycles, tasks and batches."""

    def __init__(self, limits: Limits, clock: Callable[[], int]) -> None:
        super().__init__(limits, clock)
        self._numbers = itertools.count(1)

    def _log(self, line: Line) -> None:
        name = task_name(line.task_id)
        flow_id, cycle = name.run.ad_hoc or name.run.flow_id, name.run.cycle
        kept = self._logs.setdefault((flow_id, cycle), [])
        log_id = f"{self._clock()}-{next(self._numbers)}"
        kept.append(
            StoredLine(
                log_id,
                cycle,
                name.run.run,
                name.within_run,
                line.level,
                line.source,
                line.message,
                line.at,
                line.attempt,
            )
        )
        del kept[: -self._limits.log_lines]
        cycles = sorted(at for flow, at in self._logs if flow == flow_id)
        for old in cycles[: -self._limits.log_cycles]:
            del self._logs[flow_id, old][: -self._limits.older_log_lines]
        for gone in cycles[: -self._limits.logged_cycles]:
            del self._logs[flow_id, gone]

    def _log_retry(self, task: NodeTask) -> None:
        """Add that another attempt follows the latest one, at `retry_at`."""
        now = self._clock()
        text = f"attempt {task.attempt + 1} follows in {duration_text(task.retry_at - now)}"
        self._log(Line(task.task_id, task.attempt, "", "INFO", "system", text, now))

    def _log_error(self, task: NodeTask, error: TaskError) -> None:
        """Add the error of an attempt, or of a wait for one, that no worker reports."""
        self._log(Line(task.task_id, task.attempt, task.nonce, "ERROR", "system", error.summary, self._clock()))
