"""Ending attempts in memory, and beginning those that a worker went on with by itself."""

from collections.abc import Sequence

from tradewind.node_task_manager.domain.node_task import NodeTask, NodeTaskStatus
from tradewind.node_task_manager.ports.work import Effects, Outcome, OutcomeKind, Vacancy
from tradewind.node_task_manager.stores.memory.call import Call
from tradewind.node_task_manager.stores.memory.replacing import replace
from tradewind.node_task_manager.stores.memory.suspension import MemorySuspension

_REFUSED_BEFORE = "the outcome it was begun on was refused: "


class MemoryCompleting(MemorySuspension):
    """Takes outcomes."""

    async def complete(self, outcomes: Sequence[Outcome], vacancies: Sequence[Vacancy] = ()) -> Effects:
        call = Call()
        before: Outcome | None = None
        for outcome in outcomes:
            if outcome.eager and before is not None:
                refused = self._complete_eager(before, call.results[-1], outcome, call)
            else:
                refused = self._complete(outcome, call)
            call.results.append(refused)
            before = outcome
        return self._conclude(call, vacancies)

    def _complete(self, outcome: Outcome, call: Call) -> str:
        """End an attempt; returns why not, "" when it ended now or had already ended so."""
        refused = self._outcome_refusal(outcome)
        task = self._tasks.get(outcome.task_id)
        if refused is not None or task is None:
            return refused or ""
        task = self._release(task) if task.status is NodeTaskStatus.RUNNING else self._dequeue(task)
        if task.nonce != outcome.nonce:
            # Of an attempt that the store has lost, nobody knows when it began.
            task = replace(task, attempt=outcome.attempt, nonce=outcome.nonce, started_at=self._clock())
        stopped = task.stop or self._components[self._owner(task)].stop
        if outcome.kind is OutcomeKind.COMPLETED:
            self._succeed(task, outcome, call)
        elif outcome.kind is OutcomeKind.FAILED:
            assert outcome.error is not None
            if outcome.unreported:
                self._log_error(task, outcome.error)
            self._fail_attempt(task, outcome.error, outcome.retry_request, call)
        elif outcome.kind is OutcomeKind.SUSPENDED and outcome.wait is not None and not stopped:
            self._suspend(task, outcome.wait, call)
        else:
            reason = task.stop.reason if task.stop else outcome.error.message if outcome.error else ""
            self._finish(task, NodeTaskStatus.TERMINATED, reason, call)
        return ""

    def _succeed(self, task: NodeTask, outcome: Outcome, call: Call) -> None:
        outputs = tuple(sorted(outcome.outputs))
        task = replace(task, outputs=outputs, emitted=tuple(handle for handle, _ in outputs))
        if outcome.cache:
            task = replace(task, cached=outcome.cache, worker_id="")
            component = self._components[self._owner(task)]
            self._components[self._owner(task)] = replace(component, cached=component.cached + 1)
        self._finish(task, NodeTaskStatus.COMPLETED, "", call)

    def _complete_eager(self, before: Outcome, refused: str, outcome: Outcome, call: Call) -> str:
        """Take an eager attempt; returns why not, "" when it counts."""
        if refused:
            return refused if refused.startswith(_REFUSED_BEFORE) else f"{_REFUSED_BEFORE}{refused}"
        self._settle(call)
        task = self._tasks.get(outcome.task_id)
        begun = outcome.kind is OutcomeKind.BEGUN
        if task is not None and task.status is NodeTaskStatus.PENDING and not task.attempt:
            refusal = self._begin_eagerly(outcome.eager, self._tasks[before.task_id], task, outcome.nonce)
            return refusal or ("" if begun else self._complete(outcome, call))
        if not begun:
            return self._complete(outcome, call)
        if task is not None and task.nonce == outcome.nonce:
            return ""
        return f"the node task is {task.status if task else 'not ready'}"

    def _outcome_refusal(self, outcome: Outcome) -> str | None:
        """Say why an outcome changes nothing, "" when it took effect before; None when it should take effect."""
        task = self._tasks.get(outcome.task_id)
        if task is None:
            return "no such node task"
        if task.status.terminal:
            return "" if task.nonce == outcome.nonce else f"the node task is {task.status}"
        # The store may have lost its last second, and with it a later attempt of the same run.
        forgotten = task.attempt < outcome.attempt and outcome.nonce.startswith(self._tag(task))
        if forgotten and task.status is not NodeTaskStatus.REGISTERED:
            if self._is_mapped(task):
                return "the node runs once for each item of a list; only its items are given to workers"
            return None
        if task.nonce != outcome.nonce or task.status is not NodeTaskStatus.RUNNING:
            reported = outcome.kind in (OutcomeKind.FAILED, OutcomeKind.SUSPENDED)
            if reported and self._private[task.task_id].settled == outcome.nonce:
                return ""
            return f"the lease lapsed; this is attempt {outcome.attempt}, the latest is {task.attempt}"
        return None

    def _begin_eagerly(self, worker_id: str, source: NodeTask, task: NodeTask, nonce: str) -> str:
        """Begin a ready node task that has had no attempt; returns why not, "" when it began."""
        node = self._node(task)
        if node.fan_out or node.wait:
            return "this node does not run on workers"
        if task.stop or self._components[self._owner(task)].stop:
            return "it is being stopped"
        if not self._feeds(source, task):
            return "it does not follow the node task that was reported before it"
        if self._config.bounded or self._own_limits(task):
            return "limits are set, so it has to wait for its turn"
        task = replace(self._dequeue(task), status=NodeTaskStatus.RUNNING, attempt=1)
        self._lease(task, worker_id, nonce)
        self._count_attempt(task)
        return ""

    def _feeds(self, source: NodeTask, task: NodeTask) -> bool:
        """Say whether `source` has emitted the only input of `task`."""
        plan = self._plan(task)
        into = plan.inputs[task.index]
        if self._owner(source) != self._owner(task) or len(into) != 1:
            return False
        edge = plan.edges[into[0]]
        return edge.source == source.index and edge.source_handle in source.emitted
