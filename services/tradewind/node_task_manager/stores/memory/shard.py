"""Changing the node tasks of one shard in memory."""

from collections.abc import Sequence

from msgspec import structs

from tradewind.node_task_manager.domain.batch import ONLY_COMPONENT, Deletion
from tradewind.node_task_manager.domain.component import (
    Component,
    ComponentStatus,
    Release,
    RunSubmission,
    SubmitOutcome,
    SubmitResult,
)
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import NodeTaskStatus, StopMark
from tradewind.node_task_manager.domain.task_event import TaskEventKind
from tradewind.node_task_manager.ports.node_tasks import Purge, Submitted
from tradewind.node_task_manager.ports.work import Effects, Postponed, Vacancy
from tradewind.node_task_manager.stores.memory.call import Call
from tradewind.node_task_manager.stores.memory.completing import MemoryCompleting
from tradewind.node_task_manager.stores.memory.progress import MemoryProgress
from tradewind.node_task_manager.stores.memory.records import Run, holds_lease, run_of, task_name
from tradewind.node_task_manager.stores.memory.replacing import replace
from tradewind.node_task_manager.stores.memory.reruns import MemoryReruns
from tradewind.node_task_manager.stores.memory.sessions import MemorySessions
from tradewind.node_task_manager.stores.memory.sub_flows import MemorySubFlows
from tradewind.node_task_manager.stores.memory.waits import MemoryWaits
from tradewind.node_task_manager.stores.memory.watching import MemoryWatching
from tradewind.node_task_manager.stores.memory.withheld import MemoryWithheld
from tradewind.server.durations import duration_text


class MemoryShard(
    MemorySubFlows,
    MemoryReruns,
    MemoryWithheld,
    MemoryWatching,
    MemoryCompleting,
    MemorySessions,
    MemoryProgress,
    MemoryWaits,
):
    """All stores of a shard; `clock` returns epoch ms."""

    def next_ms(self) -> int | None:
        """Return when (epoch ms) the shard next has something to do by itself: 0 for now or soon, None for never."""
        if self._leases or any(self._events.values()) or self._slots.held_back() or not self._queues.empty:
            return 0
        return min((*self._delayed.values(), *self._paced.values()), default=None)

    async def submit(self, runs: Sequence[RunSubmission], vacancies: Sequence[Vacancy] = ()) -> Submitted:
        call = Call()
        queued = {run.user_id: self._queues.queued(run.user_id) + self._slots.blocked(run.user_id) for run in runs}
        results = [self._refusal(run, queued, call) or self._begin(run, call) for run in runs]
        return Submitted(tuple(results), self._conclude(call, vacancies))

    def _refusal(self, run: RunSubmission, queued: dict[str, int], call: Call) -> SubmitResult | None:
        existing = self._runs.get(str(run.run))
        if existing is not None:
            if existing.submission.run_id == run.run_id:
                return SubmitResult(SubmitOutcome.DUPLICATE)
            if not run.run.ad_hoc:
                self._end_lost_run(existing, run.begun_ms, call)
            return SubmitResult(SubmitOutcome.RUN_CONFLICT, existing_run_id=existing.submission.run_id)
        if not run.run.ad_hoc:
            if run.begun_ms <= self._purged.get(run.run.flow_id, (-1, 0))[0]:
                return SubmitResult(SubmitOutcome.FLOW_PURGED)
            if self.waiting(run.partition) >= self._limits.events_per_partition:
                return SubmitResult(SubmitOutcome.EVENTS_FULL)
            if self._has_lost_its_source(run):
                return SubmitResult(SubmitOutcome.RESULTS_EXPIRED)
        unknown = tuple(digest for _, digest in run.components if digest not in self._plans)
        if unknown:
            return SubmitResult(SubmitOutcome.PLAN_UNKNOWN, unknown)
        parts = [(at, digest) for at, digest in run.components if at not in run.withheld]
        entries = sum(len(self._plans[digest].entries) for at, digest in parts if not self._stop_mark(run, at))
        if queued[run.user_id] + entries > self._limits.user_queue:
            return SubmitResult(SubmitOutcome.QUEUE_FULL)
        queued[run.user_id] += entries
        return None

    def _end_lost_run(self, lost: Run, begun_ms: int, call: Call) -> None:
        """End a run that the scheduler has lost, and has given its name to another that began at `begun_ms`."""
        name = str(lost.submission.run)
        mark = StopMark("the scheduler has lost this run, and given its number to another", "system", self._clock())
        for component_id, _ in lost.submission.components:
            if self._components[name, component_id].submitted_at < begun_ms:
                self._stop_component((name, component_id), mark, call)

    def _begin(self, run: RunSubmission, call: Call) -> SubmitResult:
        name = str(run.run)
        plans = {component_id: self._plans[digest] for component_id, digest in run.components}
        self._runs[name] = Run(run, {at: plan.failure_policy for at, plan in plans.items()})
        if not run.run.ad_hoc:
            self._to_clean[name] = self._clock() + self._limits.confirm_ms
        for component_id, plan in plans.items():
            self._components[name, component_id] = Component(
                run=run.run,
                run_id=run.run_id,
                component_id=component_id,
                status=ComponentStatus.RUNNING,
                user_id=run.user_id,
                plan=plan.digest,
                nodes=len(plan.nodes),
                submitted_at=self._clock(),
                node_type=run.node_type,
                withheld=component_id in run.withheld,
            )
            self._keep_results(run, (name, component_id), call)
            if mark := self._stop_mark(run, component_id):
                self._stop_component((name, component_id), mark, call)
            elif component_id not in run.withheld:
                self._begin_entries((name, component_id))
        return SubmitResult(SubmitOutcome.ACCEPTED)

    async def claim(self, vacancies: Sequence[Vacancy] = ()) -> Effects:
        return self._conclude(Call(), vacancies)

    async def postpone(self, postponed: Sequence[Postponed]) -> Effects:
        call = Call()
        for given in postponed:
            task = self._tasks.get(given.task_id)
            if not holds_lease(task, given.nonce):
                call.results.append("lost")
                continue
            self._return_tokens(task)
            if task.stop:
                call.results.append("lost")
                self._finish(replace(self._release(task), nonce=""), NodeTaskStatus.TERMINATED, task.stop.reason, call)
            elif 0 < (total_at := self._private[task.task_id].total_at) <= self._clock():
                call.results.append("lost")
                self._end_total_time(task, call)
            else:
                call.results.append("")
                at = self._clock() + max(1, given.wait_ms)
                at = min(at, total_at or at)
                self._delayed[task.task_id] = at
                task = replace(self._release(task), status=NodeTaskStatus.PENDING, nonce="", retry_at=at, postponed=at)
                self._tasks[task.task_id] = task
                self._add_event(task, TaskEventKind.WAITING)
        return self._conclude(call)

    async def hasten(self, task_ids: Sequence[str]) -> Effects:
        call = Call()
        for task_id in task_ids:
            task = self._tasks.get(task_id)
            if task is None or task.status is not NodeTaskStatus.PENDING or not task.retry_at:
                call.results.append("does not wait")
            elif task.retry_at != task.postponed:
                call.results.append("waits for its next attempt")
            else:
                call.results.append("")
                del self._delayed[task_id]
                self._enqueue(replace(task, retry_at=0))
        return self._conclude(call)

    async def reap(self, spare_ms: int = 0, by_ms: int = 0) -> Effects:
        call, now = Call(), self._clock()
        if 0 < by_ms < now:
            return structs.replace(self._conclude(call), late=True)
        spare_till = now + spare_ms
        since = spare_till - self._limits.lease_ms if spare_ms else 0
        self._reap_leases(call, now, since, spare_till)
        self._reap_waits(call, now, since, spare_till)
        return self._conclude(call)

    def _reap_leases(self, call: Call, now: int, since: int, spare_till: int) -> None:
        """End attempts whose lease or other clock is over; those that started before `since` are spared."""
        for _, task_id in sorted((at, task_id) for task_id, at in self._leases.items() if at <= now):
            task = self._tasks[task_id]
            if task.started_at < since:
                self._leases[task_id] = spare_till
                continue
            error = None if task.stop else self._expired_clock_error(task)
            call.results.append(task_id)
            if error is None:
                self._give_back(task, lost=True, call=call)
                continue
            if error.code == "HEARTBEAT_TIMEOUT":
                call.terminate(task, StopMark(error.message, "system", now))
            self._log_error(task, error)
            self._fail_attempt(replace(task, nonce=""), error, None, call)

    def _reap_waits(self, call: Call, now: int, since: int, spare_till: int) -> None:
        """Fail node tasks that have waited too long for a worker; those ready before `since` are spared."""
        for _, task_id in sorted((at, task_id) for task_id, at in self._queues.waits.items() if at <= now):
            task = self._tasks[task_id]
            node, total_at = self._node(task), self._private[task_id].total_at
            spared, time_is_over = task.ready_at < since, 0 < total_at <= now
            if (spared or self._waits_for_limit(task)) and not time_is_over:
                till = spare_till if spared else now + node.schedule_to_start_ms
                self._queues.waits[task_id] = min(till, total_at or till)
                continue
            call.results.append(task_id)
            task = self._dequeue(task)
            if time_is_over:
                message = f"no attempt succeeded within the total time of {duration_text(node.total_ms)}"
                self._time_out(task, "TOTAL_TIMEOUT", message, call)
            else:
                limit = duration_text(node.schedule_to_start_ms)
                message = f'no worker that offers "{node.node_type}" took it within {limit}'
                self._time_out(task, "START_TIMEOUT", message, call)

    async def reopen(self) -> Effects:
        call = Call()
        for task_id in self._leases:
            self._tasks[task_id] = self._take_new_slots(self._tasks[task_id])
        self._queues.unpark_all()
        self._readmit(self._slots.readmit_all())
        return self._conclude(call)

    async def stop(self, run: RunName, run_id: str, component_id: str, reason: str, by: str, mark_ms: int) -> Effects:
        call, name = Call(), str(run)
        known = self._stops.get((name, component_id))
        mark = known[1] if known and known[0] == run_id else StopMark(reason, by, self._clock())
        existing = self._runs.get(name)
        # No ad-hoc run is stopped before it is submitted, and the name of one that is gone may be that of another soon.
        if existing is not None or not run.ad_hoc:
            self._stops[name, component_id] = (run_id, mark)
        before = self._count(name, NodeTaskStatus.SKIPPED)
        if existing is not None and existing.submission.run_id == run_id:
            for other, _ in existing.submission.components:
                spared = component_id == "" and other in existing.submission.withheld
                if component_id in ("", other) and not spared:
                    self._stop_component((name, other), mark, call)
        self._settle(call)
        call.results += [str(self._count(name, NodeTaskStatus.SKIPPED) - before), str(len(call.terminations))]
        return self._conclude(call)

    async def release(self, run: RunName, run_id: str, components: Sequence[Release]) -> Effects:
        call, existing = Call(), self._runs.get(str(run))
        for each in components if existing is not None and existing.submission.run_id == run_id else ():
            self._release_component((str(run), each.component_id), each, call)
        return self._conclude(call)

    def _count(self, run: str, status: NodeTaskStatus) -> int:
        tasks = self._tasks.items()
        return sum(run_of(task_id) == run and task.status is status for task_id, task in tasks)

    async def terminate(self, task_id: str, component_id: str, index: int, reason: str, by: str) -> Effects:
        call = Call()
        owner = (run_of(task_id), component_id)
        not_begun = task_name(task_id).item >= 0 and task_id not in self._tasks
        if owner not in self._components or not_begun:
            return Effects(results=("unknown",))
        call.results.append("")
        task = self._tasks.get(task_id) or self._create(owner, index)
        mark = StopMark(reason, by, self._clock())
        if task.status is NodeTaskStatus.RUNNING:
            self._request_stop(task, mark, call)
        elif not task.status.terminal:
            self._end_idle(replace(task, stop=mark), reason, call)
        return self._conclude(call)

    async def delete_batch(self, run: RunName, user_id: str) -> Deletion:
        name = str(run)
        component = self._components.get((name, ONLY_COMPONENT))
        if component is None or component.user_id != user_id:
            return Deletion.UNKNOWN
        if component.status is not ComponentStatus.FINISHED:
            return Deletion.OPEN
        self._forget_run(name)
        del self._plans[component.plan]
        self._logs.pop((name, 0), None)
        self._quiet.pop((user_id, f"given_up:{name}"), None)
        return Deletion.DELETED

    async def purge(self, flow_id: str, schedule_epoch: int = 0) -> Purge:
        call = Call()
        removed_epoch = self._purged.get(flow_id, (0, 0))[1]
        if schedule_epoch and removed_epoch >= schedule_epoch:
            return Purge(0, True, call.effects())
        now = self._clock()
        self._purged[flow_id] = (min(now, schedule_epoch or now), schedule_epoch or removed_epoch)
        self._budgets.forget(flow_id)
        mark = StopMark("the flow was deleted", "system", now)
        runs = [name for name, run in self._runs.items() if run.submission.run.flow_id == flow_id]
        for task in [task for task in self._tasks.values() if run_of(task.task_id) in runs]:
            if task.status in (NodeTaskStatus.PENDING, NodeTaskStatus.SUSPENDED):
                self._dequeue(task)
            if task.status is NodeTaskStatus.RUNNING and task.worker_id:
                call.terminate(task, mark)
            self._release(self._withdraw(task) if self._is_mapped(task) else task)
        removed = 0
        for name in runs:
            removed += len(self._runs[name].submission.components)
            removed += self._forget_run(name)
        self._kept.pop(flow_id, None)
        self._logs = {key: lines for key, lines in self._logs.items() if key[0] != flow_id}
        self._reopen()
        self._queues.tidy()
        return Purge(removed, True, call.effects())

    async def totals(self) -> dict[str, int]:
        return dict(self._totals)
