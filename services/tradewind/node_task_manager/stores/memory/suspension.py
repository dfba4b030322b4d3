"""Node tasks in memory that wait for a signal or a time."""

from tradewind.node_task_manager.domain.node_task import ELSEWHERE, NodeTask, NodeTaskStatus
from tradewind.node_task_manager.domain.notification import Fact, NotificationKind
from tradewind.node_task_manager.domain.task_event import TaskEventKind
from tradewind.node_task_manager.domain.waiting import MAX_KEPT, MAX_KEPT_OF_RUN, MAX_REQUESTS, Resumption, Signal, Wait
from tradewind.node_task_manager.ports.work import Effects
from tradewind.node_task_manager.stores.memory.call import Call
from tradewind.node_task_manager.stores.memory.fan_out import MemoryFanOut
from tradewind.node_task_manager.stores.memory.records import run_of, task_name
from tradewind.node_task_manager.stores.memory.replacing import replace
from tradewind.server.durations import duration_text


class MemorySuspension(MemoryFanOut):
    """Suspends node tasks, and ends their waits."""

    async def signal(self, signal: Signal) -> Effects:
        call = Call()
        known = self._signal_requests.get(signal.task_id, {})
        if signal.request_id in known:
            call.results.append(known[signal.request_id])
        else:
            result = self._handle_signal(signal, call)
            call.results.append(result)
            if signal.request_id and result in ("resumed", "kept"):
                latest = [*known.items(), (signal.request_id, result)][-MAX_REQUESTS:]
                self._signal_requests[signal.task_id] = dict(latest)
        return self._conclude(call)

    def _handle_signal(self, signal: Signal, call: Call) -> str:
        name = task_name(signal.task_id)
        task = self._tasks.get(signal.task_id)
        component = self._components.get((str(name.run), signal.component_id))
        if component is None:
            return "unknown"
        if task is not None and task.status.terminal:
            return "ended"
        if component.stop or (task is not None and task.stop):
            return "stopping"
        if task is None and name.item >= 0:
            return "unknown"
        resumption = Resumption(self._clock(), signal.signal, signal.payload, signal.by)
        if task is None or task.status is not NodeTaskStatus.SUSPENDED:
            if signal.attempt >= 0:
                return "changed"
            return self._store_signal(signal.task_id, resumption)
        if task.attempt != signal.attempt:
            return "changed"
        self._resume(task, resumption, signal.handle, signal.payload, call)
        return "resumed"

    def _store_signal(self, task_id: str, resumption: Resumption) -> str:
        of_run = sum(len(kept) for other, kept in self._signals.items() if run_of(other) == run_of(task_id))
        kept = self._signals.setdefault(task_id, [])
        if len(kept) >= MAX_KEPT or of_run >= MAX_KEPT_OF_RUN:
            return "full"
        kept.append(resumption)
        return "kept"

    def _suspend(self, task: NodeTask, wait: Wait, call: Call) -> None:
        """Begin the wait of a node task that ran; its lease has been released."""
        self._private[task.task_id].settled = task.nonce
        task = self._wait(task, wait)
        early = next((each for each in self._signals.get(task.task_id, ()) if each.signal == wait.signal), None)
        if early is not None and wait.signal and not wait.form:
            self._signals[task.task_id].remove(early)
            self._resume(task, early, wait.completes, early.payload, call)

    def _wait(self, task: NodeTask, wait: Wait) -> NodeTask:
        now = self._clock()
        wait = replace(wait, till=now + wait.after_ms if wait.after_ms >= 0 else wait.till, after_ms=-1, since=now)
        ends = [at for at in (wait.till, self._private[task.task_id].total_at) if at]
        at = max(min(ends), now + 1) if ends else 0
        if at:
            self._delayed[task.task_id] = at
        task = replace(task, status=NodeTaskStatus.SUSPENDED, wait=wait, retry_at=at)
        self._tasks[task.task_id] = task
        self._add_event(task, TaskEventKind.SUSPENDED)
        if wait.form:
            wanted = NotificationKind.ANSWER_WANTED
            fact = Fact(wanted, task.task_id, node_type=self._node(task).node_type, message=wait.title)
            self._notify(self._user(task), fact)
        return task

    def _resume(self, task: NodeTask, resumption: Resumption | None, handle: str, value: str, call: Call) -> None:
        """End a wait; `resumption` is the signal or the time that ended it, if either did.

        With a handle, the node task completes and emits `value` by it; otherwise it runs again.
        """
        task = replace(self._dequeue(task), resumed=resumption or task.resumed)
        if handle:
            task = replace(task, outputs=((handle, value),), emitted=(handle,))
            self._finish(task, NodeTaskStatus.COMPLETED, "", call)
        else:
            self._enqueue(replace(task, status=NodeTaskStatus.PENDING))

    def _enqueue(self, task: NodeTask) -> None:
        wait = self._node(task).wait
        if wait is None or self._is_mapped(task):
            super()._enqueue(task)
            return
        now, begin = self._clock(), self._earliest(task)
        if begin > now and not task.ready_at:
            self._delayed[task.task_id] = begin
            self._tasks[task.task_id] = replace(task, status=NodeTaskStatus.PENDING, ready_at=now, retry_at=begin)
            self._add_event(task, TaskEventKind.QUEUED)
            return
        self._start_total_time(task)
        self._wait(replace(task, ready_at=now, started_at=now), wait)

    def _wake(self, task: NodeTask, call: Call) -> None:
        if task.status is not NodeTaskStatus.SUSPENDED:
            super()._wake(task, call)
            return
        if self._components[self._owner(task)].stop is not None:
            # The stop reaches this node task as well.
            return
        wait = task.wait
        assert wait is not None
        task = self._dequeue(task)
        if 0 < self._private[task.task_id].total_at <= self._clock():
            self._abandon(task)
            self._end_total_time(task, call)
        elif wait.late_error:
            self._time_out(task, "WAIT_TIMEOUT", wait.late_error, call)
        else:
            handle, value = wait.late or (wait.completes, "null")
            self._resume(
                task, Resumption(self._clock()), handle, self._passed_value(task) if wait.passes else value, call
            )

    def _end_total_time(self, task: NodeTask, call: Call) -> None:
        """Fail a node task whose total time ended while it waited, but not in a queue."""
        limit = duration_text(self._node(task).total_ms)
        self._time_out(task, "TOTAL_TIMEOUT", f"it was still waiting when the total time of {limit} ended", call)

    def _passed_value(self, task: NodeTask) -> str:
        """Return the value of the first live edge into a node, or null."""
        for at, value in sorted(task.inputs):
            edge = self._plan(task).edges[at]
            source = task_name(task.task_id).run.task_id(self._plan(task).nodes[edge.source].node_id)
            return value if value != ELSEWHERE else dict(self._tasks[source].outputs)[edge.source_handle]
        return "null"

    def _dequeue(self, task: NodeTask) -> NodeTask:
        if task.status is not NodeTaskStatus.SUSPENDED:
            return super()._dequeue(task)
        self._delayed.pop(task.task_id, None)
        return replace(task, retry_at=0, wait=None)
