"""The clocks of node tasks in memory: leases, timeouts, heartbeats, total times."""

from tradewind.node_task_manager.domain.limits import MAX_AHEAD_MS
from tradewind.node_task_manager.domain.node_task import NodeTask, TaskError
from tradewind.node_task_manager.stores.memory.records import MemoryRecords
from tradewind.server.durations import duration_text


class MemoryClocks(MemoryRecords):
    """Starts clocks, restarts them, and says which has run out."""

    def _start_total_time(self, task: NodeTask) -> int:
        """Return when a node task's total time ends, 0 for never; it starts when the node task may first begin."""
        node, private = self._node(task), self._private[task.task_id]
        if node.total_ms and not private.total_at:
            private.total_at = self._earliest(task) + node.total_ms
        return private.total_at

    def _earliest(self, task: NodeTask) -> int:
        """Return when a node task that is ready may begin: at its cycle's planned time if that is due in a moment."""
        now, planned_ms = self._clock(), self._runs[self._owner(task)[0]].submission.planned_ms
        return min(max(now, planned_ms), now + MAX_AHEAD_MS)

    def _start_clocks(self, task: NodeTask) -> int:
        """Start the clocks of an attempt; return when it begins."""
        node, private, begin = self._node(task), self._private[task.task_id], self._earliest(task)
        timeout_at = begin + node.start_to_close_ms if node.start_to_close_ms else 0
        private.close_at = min((at for at in (timeout_at, private.total_at) if at), default=0)
        private.beat_by = begin + node.heartbeat_ms if node.heartbeat_ms else 0
        self._renew_lease(task)
        return begin

    def _renew_lease(self, task: NodeTask) -> None:
        """Renew a lease, though never beyond the attempt's other clocks."""
        private = self._private[task.task_id]
        till = self._clock() + self._limits.lease_ms
        if private.close_at:
            till = min(till, private.close_at + self._limits.stop_grace_ms)
        if private.beat_by:
            till = min(till, private.beat_by)
        self._leases[task.task_id] = till

    def _record_heartbeat(self, task: NodeTask) -> None:
        """Note a sign of life: restart the time for which the attempt may be silent."""
        beat = self._node(task).heartbeat_ms
        if beat and not task.stop:
            self._private[task.task_id].beat_by = self._clock() + beat
            self._renew_lease(task)

    def _expired_clock_error(self, task: NodeTask) -> TaskError | None:
        """Return the error of the clock that ended an attempt, None when that was the lease."""
        now, node, private = self._clock(), self._node(task), self._private[task.task_id]
        attempt = f"attempt {task.attempt}"
        if 0 < private.total_at <= now:
            late = f"{attempt} was still running when the total time of {duration_text(node.total_ms)} ended"
            return TaskError("TOTAL_TIMEOUT", late)
        if 0 < private.close_at <= now:
            took = duration_text(private.close_at - task.started_at)
            return TaskError("TIMEOUT", f"{attempt} took longer than its timeout of {took} on worker {task.worker_id}")
        if 0 < private.beat_by <= now:
            silent = f"{attempt} sent no heartbeat for {duration_text(node.heartbeat_ms)} on worker {task.worker_id}"
            return TaskError("HEARTBEAT_TIMEOUT", silent)
        return None
