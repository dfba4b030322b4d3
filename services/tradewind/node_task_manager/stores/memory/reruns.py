"""Reruns in memory: nodes that keep their results from an earlier run."""

from functools import partial

from msgspec import structs

from tradewind.node_task_manager.domain.component import RunSubmission
from tradewind.node_task_manager.domain.node_task import NodeTask, NodeTaskStatus
from tradewind.node_task_manager.stores.memory.call import Call
from tradewind.node_task_manager.stores.memory.cleaning import MemoryCleaning
from tradewind.node_task_manager.stores.memory.replacing import replace


class MemoryReruns(MemoryCleaning):
    """Takes over results; the runs of a cycle are kept and removed together."""

    def _has_lost_its_source(self, run: RunSubmission) -> bool:
        if not run.kept:
            return False
        source = self._runs.get(str(structs.replace(run.run, run=run.source)))
        return source is None or source.submission.run_id != run.source_id

    def _keep_results(self, run: RunSubmission, owner: tuple[str, str], call: Call) -> None:
        """Complete the nodes of a component whose results are kept, so that their signals are delivered."""
        if run.source < 0:
            return
        source_run = structs.replace(run.run, run=run.source)
        self._kept.get(run.run.flow_id, set()).discard(source_run)
        if str(source_run) in self._runs:
            self._to_clean[str(source_run)] = self._clock() + self._limits.settle_ms
        plan = self._plans[self._components[owner].plan]
        for place in dict(run.kept).get(owner[1], ()):
            node_id = plan.nodes[place].node_id if place < len(plan.nodes) else ""
            source, task_id = self._tasks.get(source_run.task_id(node_id)), run.run.task_id(node_id)
            if source is not None and source.status is NodeTaskStatus.COMPLETED and task_id not in self._tasks:
                self._keep(source, owner, place)
                call.work.append((owner, partial(self._deliver_all, owner, task_id, call)))

    def _keep(self, source: NodeTask, owner: tuple[str, str], place: int) -> None:
        task = replace(
            self._create(owner, place),
            status=NodeTaskStatus.COMPLETED,
            waiting=0,
            kept=source.kept or source.task_id,
            attempt=source.attempt,
            worker_id=source.worker_id,
            ready_at=source.ready_at,
            started_at=source.started_at,
            ended_at=source.ended_at,
            cached=source.cached,
            outputs=source.outputs,
            emitted=source.emitted,
        )
        self._tasks[task.task_id] = task
        component = self._components[owner]
        sink = not self._plan(task).outputs[place]
        self._components[owner] = replace(
            component, completed=component.completed + 1, sinks_completed=component.sinks_completed + sink
        )
