"""Node tasks whose outputs may come from a cache: they go to their workers only if the cache has nothing."""

from collections.abc import Callable, Sequence

from tradewind.node_task_manager.domain.caching import CacheUse
from tradewind.node_task_manager.ports.work import Outcome, OutcomeKind, Postponed
from tradewind.node_task_manager.ports.workers import Ready
from tradewind.node_task_manager.use_cases.caches import Busy, Hit, ResultCaches
from tradewind.node_task_manager.use_cases.connected_worker import ConnectedWorker
from tradewind.node_task_manager.use_cases.report import Report
from tradewind.node_task_manager.use_cases.trace_nodes import TraceNodes
from tradewind.node_task_manager.use_cases.worker_pool import WorkerPool
from tradewind.server.side_tasks import SideTasks


class CachedDelivery:
    """Hands node tasks of one shard to workers; `report` takes reports made on behalf of a worker."""

    def __init__(
        self, caches: ResultCaches, pool: WorkerPool, report: Callable[[Report], None], traces: TraceNodes | None
    ) -> None:
        self._traces = traces
        self._caches = caches
        self._pool = pool
        self._report = report
        self._lookups: set[str] = set()
        self._tasks = SideTasks()

    async def stop(self) -> None:
        """Leave node tasks that are still being looked up to their leases."""
        await self._tasks.end()

    def give(self, worker: ConnectedWorker, items: Sequence[Ready]) -> None:
        """Assign node tasks at once, except those whose outputs may be in a cache, which are looked up first."""
        plain: list[Ready] = []
        lookups: list[tuple[Ready, CacheUse]] = []
        for item in items:
            use = self._caches.use_of(item, worker.offers)
            if use is None:
                plain.append(item)
            elif item.assignment.nonce not in self._lookups:
                # The same one may come twice: the store repeats assignments that a worker does not name.
                self._lookups.add(item.assignment.nonce)
                lookups.append((item, use))
        if plain:
            self._assign(worker, plain)
        for item, use in lookups:
            self._tasks.begin(self._look_up(worker, item, use))

    def looks_up(self, nonce: str) -> bool:
        """Say whether a node task is still being looked up."""
        return nonce in self._lookups

    async def _look_up(self, worker: ConnectedWorker, item: Ready, use: CacheUse) -> None:
        given = item.assignment
        try:
            found = await self._caches.look_up(item, use, worker.version_of(item.node.node_type), worker)
        finally:
            self._lookups.discard(given.nonce)
        match found:
            case Hit():
                if self._traces is not None:
                    self._traces.answered(item, postponed=False)
                self._report(Report(worker, [cached_outcome(item, use, found)]))
            case Busy():
                if self._traces is not None:
                    self._traces.answered(item, postponed=True)
                postponed = Postponed(given.task_id, given.nonce, found.ms)
                self._report(Report(worker, postponed=[postponed]))
            case None if worker in self._pool and given.nonce in worker.held:
                self._assign(worker, [item])
            case None:
                self._caches.flights.dropped(given.nonce)

    def _assign(self, worker: ConnectedWorker, items: Sequence[Ready]) -> None:
        worker.line.assign(items if self._traces is None else self._traces.dispatched(items))


def cached_outcome(item: Ready, use: CacheUse, hit: Hit) -> Outcome:
    """Return the success of a node task that did not run."""
    given = item.assignment
    return Outcome(given.task_id, given.attempt, given.nonce, OutcomeKind.COMPLETED, tuple(hit.outputs), cache=use.name)
