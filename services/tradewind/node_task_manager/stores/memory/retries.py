"""Retries in memory: whether another attempt follows a failed one, and when."""

from tradewind.node_task_manager.domain.node_task import NodeTask, TaskError
from tradewind.node_task_manager.domain.retry import RetryPolicy, RetryRequest


def final_reason(
    task: NodeTask, policy: RetryPolicy, error: TaskError, retry_request: RetryRequest | None, at: int, total_at: int
) -> str:
    """Say why no attempt follows a failed one at `at`, "" when one does; `task.failures` includes the failed one."""
    if retry_request is not None and retry_request.none:
        return "the node asked not to be retried"
    if excluded := policy.excludes(error):
        return f"{excluded} is not retried"
    if task.failures >= policy.attempts:
        return f"all {policy.attempts} attempts failed"
    if 0 < total_at <= at:
        return "the total time would end before the next attempt could begin"
    return ""


def wait_ms(task: NodeTask, policy: RetryPolicy, retry_request: RetryRequest | None) -> int:
    """Return how long a node task waits for its next attempt: at least 1 ms."""
    if retry_request is not None and retry_request.after_ms is not None:
        return max(1, retry_request.after_ms)
    return max(1, policy.delay_ms(task.task_id, task.failures))
