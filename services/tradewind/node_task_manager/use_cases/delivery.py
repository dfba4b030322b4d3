"""Delivering the effects of changes to workers, and news of them to everybody else who must know."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import structlog

from tradewind.node_task_manager.domain.plan import Plan
from tradewind.node_task_manager.metrics import count_assigned
from tradewind.node_task_manager.ports.events import NewEvent
from tradewind.node_task_manager.ports.work import Assignment, Effects, Held, Termination
from tradewind.node_task_manager.ports.workers import Ready
from tradewind.node_task_manager.use_cases.cached_delivery import CachedDelivery
from tradewind.node_task_manager.use_cases.caches import ResultCaches
from tradewind.node_task_manager.use_cases.connected_worker import ConnectedWorker
from tradewind.node_task_manager.use_cases.inputs import (
    InputsTooLarge,
    has_all_inputs,
    ready,
    unassignable_outcome,
    with_inputs,
)
from tradewind.node_task_manager.use_cases.plans import PlanCache
from tradewind.node_task_manager.use_cases.report import Report
from tradewind.node_task_manager.use_cases.shard import Shard
from tradewind.node_task_manager.use_cases.trace_nodes import TraceNodes
from tradewind.node_task_manager.use_cases.worker_pool import WorkerPool
from tradewind.server.side_tasks import SideTasks

_log = structlog.get_logger(__name__)
_RETRY_S = 0.5


class Delivery:
    """Delivers the effects of one shard.

    `publish_events(shard, events)` gets new events; `notify_elsewhere(shard, workers)` gets workers that are not
    connected here and must be notified; `report` takes reports made on behalf of a worker.
    """

    def __init__(
        self,
        shard: Shard,
        pool: WorkerPool,
        plans: PlanCache,
        publish_events: Callable[[int, Sequence[NewEvent]], None],
        notify_elsewhere: Callable[[int, Sequence[str]], None],
        report: Callable[[Report], None],
        caches: ResultCaches,
        traces: TraceNodes | None = None,
    ) -> None:
        self._shard = shard
        self._pool = pool
        self._plans = plans
        self._publish_events = publish_events
        self._notify_elsewhere = notify_elsewhere
        self._report = report
        self._cached = CachedDelivery(caches, pool, report, traces)
        self._reading = SideTasks()
        self._unsent: set[str] = set()
        self.bounded = False
        """Whether system-wide limits are set: then no worker goes on by itself."""

    async def stop(self) -> None:
        """Leave node tasks whose inputs are still being read to their leases."""
        await self._reading.end()
        await self._cached.stop()

    def deliver(self, effects: Effects, recipients: Mapping[str, ConnectedWorker], at_once: bool) -> None:
        """Deliver effects, except assignments whose inputs must be read first; `recipients` are the workers they name.

        Assignments count as held when this returns. They and stops go to workers `at_once`, or else a turn of the loop
        later: by then the next script is on its way to the store, and runs meanwhile.
        """
        if effects.assignments or effects.terminations:
            count_assigned(effects.assignments)
            held = self._hold(effects.assignments, recipients)
            if at_once:
                self._send(held, effects.terminations)
            else:
                asyncio.get_running_loop().call_soon(self._send, held, effects.terminations)
        if effects.events:
            self._publish_events(self._shard.number, effects.events)
        for worker_id in effects.stale_workers:
            self.replaced(recipients[worker_id])

    def replaced(self, worker: ConnectedWorker) -> None:
        """End a stream whose session is not the latest."""
        if worker in self._pool:
            self._pool.remove(worker)
            worker.line.close("a newer stream of this worker is open elsewhere")

    def _hold(
        self, assignments: Sequence[Assignment], recipients: Mapping[str, ConnectedWorker]
    ) -> list[tuple[ConnectedWorker, Assignment]]:
        held: list[tuple[ConnectedWorker, Assignment]] = []
        gone: dict[ConnectedWorker, list[Held]] = {}
        again: dict[ConnectedWorker, dict[str, str]] = {}
        number = self._shard.number
        present = {worker for worker in recipients.values() if worker in self._pool}
        for assignment in assignments:
            worker = recipients[assignment.worker_id]
            token = assignment.held
            if worker in present:
                worker.held[assignment.nonce] = (number, token)
                held.append((worker, assignment))
                if assignment.attempt > 1:
                    again.setdefault(worker, {})[token.task_id] = token.nonce
            else:
                gone.setdefault(worker, []).append(token)
        for worker, latest in again.items():
            worker.release_earlier(number, latest)
            self._pool.refresh(worker)
        for worker, lost in gone.items():
            self._report(Report(worker, given_back=lost))
        return held

    def _send(self, held: Sequence[tuple[ConnectedWorker, Assignment]], terminations: Sequence[Termination]) -> None:
        if held:
            self._assign(held)
        if terminations:
            self._terminate(terminations)

    def _assign(self, held: Sequence[tuple[ConnectedWorker, Assignment]]) -> None:
        at_once: dict[ConnectedWorker, list[Ready]] = {}
        slow: dict[ConnectedWorker, list[Assignment]] = {}
        for worker, assignment in held:
            plan = self._plans.get(assignment.plan, assignment.index)
            if plan is None or not has_all_inputs(assignment):
                slow.setdefault(worker, []).append(assignment)
                continue
            try:
                at_once.setdefault(worker, []).append(self._ready(worker, assignment, plan))
            except LookupError as error:
                self._report(Report(worker, [unassignable_outcome(assignment, error)]))
        for worker, items in at_once.items():
            self._cached.give(worker, items)
        for worker, late in slow.items():
            nonces = {assignment.nonce for assignment in late}
            worker.unnamed |= nonces
            self._unsent |= nonces
            self._reading.begin(self._assign_after_reading(worker, late))

    async def _assign_after_reading(self, worker: ConnectedWorker, assignments: Sequence[Assignment]) -> None:
        """Read the inputs of assignments and hand them out one by one, no faster than the worker takes them."""
        try:
            for assignment in assignments:
                await worker.line.writable()
                await self._read_and_assign(worker, assignment)
                self._unsent.discard(assignment.nonce)
        finally:
            nonces = {assignment.nonce for assignment in assignments}
            worker.unnamed -= nonces
            self._unsent -= nonces

    async def _read_and_assign(self, worker: ConnectedWorker, assignment: Assignment) -> None:
        while self._holds(worker, assignment):
            try:
                plan = await self._plans.require(self._shard.plans, assignment.plan, assignment.index)
                whole = await with_inputs(self._shard.reader, assignment, plan)
                # Meanwhile it may have been taken back.
                if self._holds(worker, assignment):
                    self._cached.give(worker, [self._ready(worker, whole, plan)])
                return
            except (LookupError, InputsTooLarge) as error:
                self._report(Report(worker, [unassignable_outcome(assignment, error)]))
                return
            except Exception as error:
                _log.warning("inputs_not_read", node_task=assignment.task_id, error=error)
                await asyncio.sleep(_RETRY_S)

    def _holds(self, worker: ConnectedWorker, assignment: Assignment) -> bool:
        return worker in self._pool and assignment.nonce in worker.held

    def withdraw(self, worker: ConnectedWorker) -> list[Held]:
        """Release what a worker is about to get, and will not get now; return it, to be given back."""
        unsent = [each for each in worker.held_in(self._shard.number) if self._is_unsent(each.nonce)]
        for each in unsent:
            worker.release(each.nonce)
        return unsent

    def _is_unsent(self, nonce: str) -> bool:
        return nonce in self._unsent or self._cached.looks_up(nonce)

    def _ready(self, worker: ConnectedWorker, assignment: Assignment, plan: Plan) -> Ready:
        eager_types = frozenset[str]() if self.bounded else worker.eager_types
        return ready(self._shard.number, assignment, plan, worker.declared, eager_types)

    def _terminate(self, terminations: Sequence[Termination]) -> None:
        by_worker: dict[str, list[Termination]] = {}
        for termination in terminations:
            by_worker.setdefault(termination.worker_id, []).append(termination)
        absent = []
        for worker_id, items in by_worker.items():
            worker = self._pool.get(worker_id)
            if worker is None:
                absent.append(worker_id)
                continue
            unsent = [each.held for each in items if self._is_unsent(each.nonce)]
            if unsent:
                # Giving them back ends them; their worker never learns of them.
                for each in unsent:
                    worker.release(each.nonce)
                self._report(Report(worker, given_back=unsent))
            if len(unsent) < len(items):
                sent = [each for each in items if each.held not in unsent]
                worker.line.terminate(self._shard.number, sent)
        if absent:
            self._notify_elsewhere(self._shard.number, absent)
