"""Consequences of a change in memory: signals, skips, stops, queues, the end of a component."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from tradewind.node_task_manager.domain.component import Component, ComponentStatus
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.node_task import (
    ELSEWHERE,
    KNOWN_CODES,
    NodeTask,
    NodeTaskStatus,
    StopMark,
)
from tradewind.node_task_manager.domain.plan import FailurePolicy
from tradewind.node_task_manager.domain.task_event import TaskEventKind
from tradewind.node_task_manager.ports.events import ComponentEvent
from tradewind.node_task_manager.stores.memory.budget import RetryBudgets
from tradewind.node_task_manager.stores.memory.call import Call
from tradewind.node_task_manager.stores.memory.events import MemoryEvents
from tradewind.node_task_manager.stores.memory.logs import MemoryLogs
from tradewind.node_task_manager.stores.memory.notices import MemoryNotices
from tradewind.node_task_manager.stores.memory.records import Private, run_of, task_name
from tradewind.node_task_manager.stores.memory.replacing import replace


class MemoryConsequences(MemoryLogs, MemoryEvents, MemoryNotices):
    """Carries out the consequences of changes; the Call collects them."""

    def __init__(self, limits: Limits, clock: Callable[[], int]) -> None:
        MemoryLogs.__init__(self, limits, clock)
        MemoryEvents.__init__(self)
        MemoryNotices.__init__(self, limits, clock)
        self._totals: Counter[str] = Counter()
        self._budgets = RetryBudgets(limits.retries, limits.retry_percent, clock)
        self._to_clean: dict[str, int] = {}
        """When cleaning should check each run of a flow: after its end, and now and then while it is open."""
        self._sessions: dict[str, int] = {}
        self._unwanted: set[tuple[str, str]] = set()
        """Withheld components that were skipped."""

    def _forget_run(self, name: str) -> int:
        """Forget all about a run, as a later one may have the same name; return how many node tasks it had."""
        for component_id, _ in self._runs.pop(name).submission.components:
            owner = (name, component_id)
            del self._components[owner]
            self._inputs.pop(owner, None)
            self._unwanted.discard(owner)
        self._to_clean.pop(name, None)
        self._stops = {key: mark for key, mark in self._stops.items() if key[0] != name}
        gone = [task_id for task_id in self._tasks if run_of(task_id) == name]
        for task_id in gone:
            del self._tasks[task_id], self._private[task_id]
            self._dead.pop(task_id, None)
        for task_id in [each for each in self._watched if run_of(each) == name]:
            del self._watched[task_id]
            self._task_events.pop(task_id, None)
        self._signals = {at: kept for at, kept in self._signals.items() if run_of(at) != name}
        self._signal_requests = {at: known for at, known in self._signal_requests.items() if run_of(at) != name}
        return len(gone)

    def _create(self, owner: tuple[str, str], place: int, task_id: str = "") -> NodeTask:
        component = self._components[owner]
        plan = self._plans[component.plan]
        task = NodeTask(
            task_id=task_id or component.run.task_id(plan.nodes[place].node_id),
            status=NodeTaskStatus.REGISTERED,
            component_id=component.component_id,
            index=place,
            waiting=len(plan.inputs[place]),
            registered_at=self._clock(),
        )
        self._tasks[task.task_id] = task
        self._private[task.task_id] = Private()
        return task

    def _begin_entries(self, owner: tuple[str, str]) -> None:
        """Let the entry nodes of a component begin, but for those that have a record already."""
        component = self._components[owner]
        plan = self._plans[component.plan]
        for place in plan.entries:
            if component.run.task_id(plan.nodes[place].node_id) not in self._tasks:
                self._enqueue(self._create(owner, place))

    def _enqueue(self, task: NodeTask) -> None:
        node, user = self._node(task), self._user(task)
        self._tasks[task.task_id] = replace(task, status=NodeTaskStatus.PENDING, ready_at=self._clock())
        self._add_event(task, TaskEventKind.QUEUED)
        name = task_name(task.task_id)
        place = task.index if name.run.ad_hoc else max(name.item, 0)
        start_by = self._earliest(task) + node.schedule_to_start_ms if node.schedule_to_start_ms else 0
        self._queues.put(node.node_type, user, task.task_id, start_by, node.priority, place)
        if total_at := self._start_total_time(task):
            self._queues.waits[task.task_id] = min(self._queues.waits.get(task.task_id, total_at), total_at)

    def _dequeue(self, task: NodeTask) -> NodeTask:
        """Take out a node task that waits in a queue, for a limit or for its next attempt."""
        self._delayed.pop(task.task_id, None)
        return replace(super()._dequeue(task), retry_at=0)

    def _wake_delayed(self, call: Call) -> None:
        for at, task_id in sorted((at, task_id) for task_id, at in self._delayed.items()):
            if at <= self._clock():
                del self._delayed[task_id]
                self._wake(self._tasks[task_id], call)

    def _wake(self, task: NodeTask, call: Call) -> None:
        """Go on with a node task whose time has come."""
        self._enqueue(replace(task, retry_at=0))

    def _request_stop(self, task: NodeTask, mark: StopMark, call: Call) -> None:
        if task.stop is None:
            self._tasks[task.task_id] = task = replace(task, stop=mark)
            self._add_event(task, TaskEventKind.STOPPING)
            self._leases[task.task_id] = self._clock() + self._limits.stop_grace_ms
            call.terminate(task, mark)

    def _finish(self, task: NodeTask, status: NodeTaskStatus, reason: str, call: Call) -> None:
        """End a node task; `_settle` carries out the consequences."""
        owner = self._owner(task)
        self._close(task, status, reason)
        call.work.append((owner, partial(self._deliver_all, owner, task.task_id, call)))
        policy = self._runs[owner[0]].policy[owner[1]]
        if status is NodeTaskStatus.FAILED and policy is FailurePolicy.FAIL_FAST:
            name = self._node(task).node_id
            self._stop_component(
                owner, StopMark(f'node "{name}" failed and the flow fails fast', "system", self._clock()), call
            )

    def _settle(self, call: Call) -> None:
        """Carry out consequences in the order they arose in; then finish the components that this has ended."""
        touched: dict[tuple[str, str], None] = {}
        while call.work:
            owner, carry_out = call.work.popleft()
            touched[owner] = None
            carry_out()
        for owner in touched:
            self._finish_component(owner)

    def _end(self, task: NodeTask, status: NodeTaskStatus, reason: str) -> None:
        """Record that a node task has ended."""
        self._tasks[task.task_id] = replace(task, status=status, ended_at=self._clock(), reason=reason or task.reason)
        self._totals[status] += 1
        error = task.error if status is NodeTaskStatus.FAILED else None
        self._add_event(task, TaskEventKind(status), error, reason)
        if error is not None:
            self._totals[f"failed:{error.code if error.code in KNOWN_CODES else 'OTHER'}"] += 1

    def _close(self, task: NodeTask, status: NodeTaskStatus, reason: str) -> None:
        owner = self._owner(task)
        self._end(task, status, reason)
        component = self._components[owner]
        counts = {status.value: getattr(component, status.value) + 1}
        if status is NodeTaskStatus.COMPLETED and not self._plan(task).outputs[task.index]:
            counts["sinks_completed"] = component.sinks_completed + 1
        self._components[owner] = replace(component, **counts)
        if component.run.ad_hoc:
            self.on_news(f"r:{component.run}")

    def _deliver_all(self, owner: tuple[str, str], task_id: str, call: Call) -> None:
        """Send the signals of an ended node task, unless its component is stopped: the stop reaches every node."""
        if self._components[owner].stop is None:
            source = self._tasks[task_id]
            for at in self._plan(source).outputs[source.index]:
                self._deliver(owner, source, at, call)

    def _deliver(self, owner: tuple[str, str], source: NodeTask, at: int, call: Call) -> None:
        """Send the signal of an edge."""
        edge = self._plan(source).edges[at]
        component = self._components[owner]
        node = self._plan(source).nodes[edge.target]
        target = self._tasks.get(component.run.task_id(node.node_id)) or self._create(owner, edge.target)
        if target.status is not NodeTaskStatus.REGISTERED:
            return
        value = dict(source.outputs).get(edge.source_handle) if source.status is NodeTaskStatus.COMPLETED else None
        continues = self._runs[owner[0]].policy[owner[1]] is FailurePolicy.CONTINUE
        live = value is not None or (source.status is NodeTaskStatus.FAILED and continues)
        target = replace(target, waiting=target.waiting - 1, live=target.live + live)
        private = self._private[target.task_id]
        if value is not None:
            small = not source.kept and len(value.encode()) <= self._limits.signal_bytes
            kept = value if small else ELSEWHERE
            target = replace(target, inputs=(*target.inputs, (at, kept)))
        elif not live:
            private.dead = private.dead or _dead_edge_reason(source, self._node(source).node_id, edge.source_handle)
        self._tasks[target.task_id] = target
        if target.waiting:
            return
        if node.run_if.wants(len(self._plan(source).inputs[edge.target]), target.live):
            self._enqueue(target)
        else:
            self._finish(target, NodeTaskStatus.SKIPPED, private.dead, call)

    def _stop_component(self, owner: tuple[str, str], mark: StopMark, call: Call) -> None:
        component = self._components[owner]
        if component.stop is None and component.status is ComponentStatus.RUNNING:
            self._components[owner] = replace(component, stop=mark)
            call.work.append((owner, partial(self._stop_nodes, owner, call)))

    def _stop_nodes(self, owner: tuple[str, str], call: Call) -> None:
        component = self._components[owner]
        mark = component.stop
        assert mark is not None
        for place, node in enumerate(self._plans[component.plan].nodes):
            task = self._tasks.get(component.run.task_id(node.node_id)) or self._create(owner, place)
            if task.status is NodeTaskStatus.RUNNING:
                self._request_stop(task, mark, call)
            elif not task.status.terminal:
                self._end_idle(task, mark.reason, call)

    def _end_idle(self, task: NodeTask, reason: str, call: Call) -> None:
        """End a node task that no worker has: terminate it if it is suspended, else skip it."""
        suspended = task.status is NodeTaskStatus.SUSPENDED
        if suspended:
            self._abandon(task)
        if task.status is not NodeTaskStatus.REGISTERED:
            task = self._dequeue(task)
        self._finish(task, NodeTaskStatus.TERMINATED if suspended else NodeTaskStatus.SKIPPED, reason, call)

    def _abandon(self, task: NodeTask) -> None:
        """End the wait of a suspended node task by something else than what it waits for."""

    def _finish_component(self, owner: tuple[str, str]) -> None:
        component = self._components[owner]
        if component.open or component.status is ComponentStatus.FINISHED:
            return
        component = replace(component, status=ComponentStatus.FINISHED, finished_at=self._clock(), withheld=False)
        self._components[owner] = component
        if component.run.ad_hoc:
            only = self._tasks.get(owner[0])
            given_up = owner[0] in self._dead
            self._notify_end(component, self._plans[component.plan].nodes[0].node_type, only, given_up=given_up)
            self.on_news(f"f:{component.run}")
            return
        if component.failed or owner not in self._unwanted:
            self._notify_component(component)
        if all(self._components[owner[0], at].finished_at for at in self._runs[owner[0]].policy):
            self._to_clean[owner[0]] = self._clock() + self._limits.settle_ms
        event = ComponentEvent(
            event_id=f"{self._clock()}-{next(self._numbers)}",
            partition=self._runs[owner[0]].submission.partition,
            at=self._clock(),
            run=owner[0],
            run_id=component.run_id,
            component=owner[1],
            nodes=component.nodes,
            completed=component.completed,
            failed=component.failed,
            terminated=component.terminated,
            skipped=component.skipped,
            sinks=component.sinks_completed,
            stop=component.stop,
            **self._sink_outputs(component),
        )
        self.append(event)

    def _sink_outputs(self, component: Component) -> dict[str, Any]:
        """Return what the only sink has emitted, if that is small."""
        plan = self._plans[component.plan]
        if plan.only_sink < 0:
            return {}
        node_id = plan.nodes[plan.only_sink].node_id
        sink = self._tasks[component.run.task_id(node_id)]
        small = sum(len(value.encode()) for _, value in sink.outputs) <= self._limits.answer_bytes
        if sink.status is not NodeTaskStatus.COMPLETED or sink.kept or not small:
            return {}
        return {"sink": node_id, "outputs": sink.outputs}


def _dead_edge_reason(source: NodeTask, node_id: str, handle: str) -> str:
    match source.status:
        case NodeTaskStatus.COMPLETED:
            return f'node "{node_id}" did not emit "{handle}"'
        case NodeTaskStatus.FAILED:
            return f'node "{node_id}" failed'
        case _:
            return f'node "{node_id}" was {source.status}'
