"""Node tasks in memory that wait for a cycle of another flow."""

from collections.abc import Sequence

from tradewind.node_task_manager.domain.node_task import NodeTask, NodeTaskStatus
from tradewind.node_task_manager.domain.retry import RetryRequest
from tradewind.node_task_manager.domain.sub_flow import ReportKind, SubFlowReport
from tradewind.node_task_manager.domain.waiting import Wait
from tradewind.node_task_manager.ports.events import SubFlowEvent
from tradewind.node_task_manager.ports.work import Effects
from tradewind.node_task_manager.stores.memory.call import Call
from tradewind.node_task_manager.stores.memory.replacing import replace
from tradewind.node_task_manager.stores.memory.suspension import MemorySuspension


class MemorySubFlows(MemorySuspension):
    """Notifies the scheduler about these node tasks, and handles its reports."""

    async def report_sub_flows(self, reports: Sequence[SubFlowReport]) -> Effects:
        call = Call()
        call.results += [self._handle_report(report, call) for report in reports]
        return self._conclude(call)

    def _handle_report(self, report: SubFlowReport, call: Call) -> str:
        task = self._tasks.get(report.task_id)
        component = self._components.get(self._owner(task)) if task else None
        if task is None or component is None or component.run_id != report.run_id:
            return "no such node task"
        if task.status is not NodeTaskStatus.SUSPENDED:
            return f"the node task is {task.status}"
        if task.attempt != report.attempt:
            return "another attempt is waiting"
        if component.stop:
            return "the component is being stopped"
        if task.child and task.child != report.child:
            return f"it waits for {task.child}"
        self._tasks[task.task_id] = task = replace(task, child=report.child)
        if report.kind is ReportKind.BEGUN:
            return ""
        if report.kind is ReportKind.COMPLETED:
            self._resume(task, None, "output", report.output, call)
        elif report.error is not None:
            self._log_error(task, report.error)
            self._fail_attempt(self._dequeue(task), report.error, RetryRequest(none=report.final), call)
        return ""

    def _wait(self, task: NodeTask, wait: Wait) -> NodeTask:
        if wait.flow_id:
            task = replace(task, attempt=task.attempt + 1, nonce="", child="")
            self._count_attempt(task)
            self._notify_scheduler(task, "")
        return super()._wait(task, wait)

    def _abandon(self, task: NodeTask) -> None:
        wait = self._node(task).wait
        if wait is not None and wait.flow_id and task.child:
            self._notify_scheduler(task, task.child)

    def _notify_scheduler(self, task: NodeTask, child: str) -> None:
        owner = self._owner(task)
        submission = self._runs[owner[0]].submission
        event_id = f"{self._clock()}-{next(self._numbers)}"
        event = SubFlowEvent(
            event_id,
            submission.partition,
            self._clock(),
            owner[0],
            submission.run_id,
            task.task_id,
            submission.user_id,
            child,
        )
        self.append(event)
