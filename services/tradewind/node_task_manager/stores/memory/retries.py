"""Attempts that did not succeed, in memory: whether another follows, and when."""

from tradewind.node_task_manager.domain.node_task import NodeTask, NodeTaskStatus, PastAttempt, TaskError
from tradewind.node_task_manager.domain.retry import RetryPolicy, RetryRequest
from tradewind.node_task_manager.domain.task_event import TaskEventKind
from tradewind.node_task_manager.stores.memory.call import Call
from tradewind.node_task_manager.stores.memory.consequences import MemoryConsequences
from tradewind.node_task_manager.stores.memory.records import task_name
from tradewind.node_task_manager.stores.memory.replacing import replace

_HISTORY = 20


class MemoryRetries(MemoryConsequences):
    """Delays node tasks whose attempt failed, gives back those that were lost, and fails those that get no more."""

    def _fail_attempt(self, task: NodeTask, error: TaskError, retry_request: RetryRequest | None, call: Call) -> None:
        """End an attempt that did not succeed: delay the node task, or fail it for good."""
        policy, asked = self._node(task).retry, retry_request or RetryRequest()
        task = self._release(task)
        task = replace(task, failures=task.failures + 1)
        stopping = task.stop or self._components[self._owner(task)].stop
        if policy and policy.attempts > 1 and not stopping:
            task = self._with_history(task, error.code)
            at = self._clock() + _wait_ms(task, policy, asked)
            final = _final_reason(task, policy, error, asked, at, self._private[task.task_id].total_at)
            flow = self._flow_of(task)
            if flow and not final and asked.after_ms is None:
                final = self._budgets.refuse(flow)
            if not final:
                self._delayed[task.task_id] = at
                self._private[task.task_id].settled = task.nonce
                task = replace(task, status=NodeTaskStatus.PENDING, nonce="", error=error, retry_at=at)
                self._tasks[task.task_id] = task
                self._add_event(task, TaskEventKind.RETRYING, error)
                self._log_retry(task)
                return
            error = replace(error, final=final)
            self._bury(task, error)
        elif not stopping and asked.after_ms is not None:
            error = replace(error, final='it asked for another attempt, but may have only one: give it a "retry"')
        self._finish(replace(task, error=error), NodeTaskStatus.FAILED, "", call)

    def _bury(self, task: NodeTask, error: TaskError) -> None:
        self._dead[task.task_id] = self._clock()
        self._notify_given_up(task.task_id, self._components[self._owner(task)], self._node(task).node_type, error)

    def _with_history(self, task: NodeTask, how: str) -> NodeTask:
        """Add the latest attempt of a node task to its history."""
        past = PastAttempt(task.attempt, task.worker_id, task.started_at, self._clock(), how)
        return replace(task, history=(*task.history, past)[-_HISTORY:])

    def _count_attempt(self, task: NodeTask) -> None:
        """Count an attempt that begins, if the retry budget of a flow depends on it."""
        policy, flow = self._node(task).retry, self._flow_of(task)
        if flow and policy and policy.attempts > 1:
            self._budgets.begin(flow)

    def _flow_of(self, task: NodeTask) -> str:
        """The flow that a node task belongs to, "" for none."""
        return task_name(task.task_id).run.flow_id

    def _give_back(self, task: NodeTask, *, lost: bool, call: Call) -> None:
        task = replace(self._release(task), nonce="")
        if task.stop:
            self._finish(task, NodeTaskStatus.TERMINATED, task.stop.reason, call)
            return
        if lost:
            call.lost += 1
            task = self._with_history(replace(task, lost=task.lost + 1), "WORKER_LOST")
            if task.lost >= self._limits.losses:
                message = f"the worker was lost {task.lost} times while it ran; the last one was {task.worker_id}"
                error = TaskError("WORKER_LOST", message)
                self._bury(task, error)
                self._fail(task, error, call)
                return
            message = f"worker {task.worker_id} was lost while it ran; it will run again"
            self._log_error(task, TaskError("WORKER_LOST", message))
        self._enqueue(task)

    def _time_out(self, task: NodeTask, code: str, message: str, call: Call) -> None:
        """Fail a node task that has waited too long, for a worker or for something else; no attempt follows."""
        error, policy = TaskError(code, message), self._node(task).retry
        if policy and policy.attempts > 1:
            error = replace(error, final=f"{code} is not retried")
            self._bury(task, error)
        self._fail(task, error, call)

    def _fail(self, task: NodeTask, error: TaskError, call: Call) -> None:
        self._log_error(task, error)
        self._finish(replace(self._release(task), nonce="", error=error), NodeTaskStatus.FAILED, "", call)


def _final_reason(
    task: NodeTask, policy: RetryPolicy, error: TaskError, asked: RetryRequest, at: int, total_at: int
) -> str:
    """Say why no attempt follows a failed one at `at`, "" when one does; `task.failures` includes the failed one."""
    if asked.none:
        return "the node asked not to be retried"
    if excluded := policy.excludes(error):
        return f"{excluded} is not retried"
    if task.failures >= policy.attempts:
        return f"all {policy.attempts} attempts failed"
    if 0 < total_at <= at:
        return "the total time would end before the next attempt could begin"
    return ""


def _wait_ms(task: NodeTask, policy: RetryPolicy, asked: RetryRequest) -> int:
    """Return how long a node task waits for its next attempt: at least 1 ms."""
    after_ms = policy.delay_ms(task.task_id, task.failures) if asked.after_ms is None else asked.after_ms
    return max(1, after_ms)
