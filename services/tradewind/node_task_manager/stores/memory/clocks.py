"""The clocks of a running attempt in memory."""

from tradewind.node_task_manager.domain.durations import duration_text
from tradewind.node_task_manager.domain.node_task import NodeTask, TaskError
from tradewind.node_task_manager.domain.plan import PlanNode
from tradewind.node_task_manager.stores.memory.records import Private


def expired_clock_error(task: NodeTask, node: PlanNode, private: Private, now: int) -> TaskError | None:
    """Return the error of the clock that ended an attempt, None when that was the lease."""
    attempt = f"attempt {task.attempt}"
    if 0 < private.total_at <= now:
        late = f"{attempt} was still running when the total time of {duration_text(node.total_ms)} ended"
        return TaskError("TOTAL_TIMEOUT", late)
    if 0 < private.close_at <= now:
        took = private.close_at - task.started_at
        return TaskError(
            "TIMEOUT", f"{attempt} took longer than its timeout of {duration_text(took)} on worker {task.worker_id}"
        )
    if 0 < private.beat_by <= now:
        silent = f"{attempt} sent no heartbeat for {duration_text(node.heartbeat_ms)} on worker {task.worker_id}"
        return TaskError("HEARTBEAT_TIMEOUT", silent)
    return None
