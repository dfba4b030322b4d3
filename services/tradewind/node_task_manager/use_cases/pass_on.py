"""Passing on node tasks that a called worker has refused: to another worker, or back to their queues."""

from collections.abc import Mapping, Sequence

import structlog
from msgspec import structs

from tradewind.node_task_manager.domain.called import MAX_CANDIDATES
from tradewind.node_task_manager.ports.work import Held
from tradewind.node_task_manager.ports.workers import Ready
from tradewind.node_task_manager.use_cases.called_connection import CalledConnection
from tradewind.node_task_manager.use_cases.dispatch import Dispatcher
from tradewind.node_task_manager.use_cases.report import Report
from tradewind.node_task_manager.use_cases.shard import by_shard
from tradewind.node_task_manager.use_cases.worker_pool import WorkerPool

_log = structlog.get_logger(__name__)


class PassOnRefused:
    """Offers refused node tasks to the other called workers; `workers` are all that this process is connected to."""

    def __init__(
        self, dispatchers: Mapping[int, Dispatcher], pool: WorkerPool, workers: Mapping[str, CalledConnection]
    ) -> None:
        self._dispatchers = dispatchers
        self._pool = pool
        self._workers = workers

    async def __call__(
        self, worker: CalledConnection, refused: Sequence[Ready], tried: Mapping[str, frozenset[str]]
    ) -> None:
        """Offer each node task to the next candidate; give back those that enough candidates have been offered.

        `tried` has, by nonce, the workers that did not take the node task before.
        """
        given_back: list[tuple[int, Held]] = []
        for each in refused:
            held = each.assignment.held
            before = tried[each.nonce] | {worker.worker_id}
            candidate = self._candidate(each.node.node_type, before)
            if candidate is None or not await self._hand_over(worker, held, each.shard, candidate, before):
                given_back.append((each.shard, held))
        for number, tokens in by_shard(given_back).items():
            self._dispatchers[number].report(Report(worker, given_back=tokens))

    def _candidate(self, node_type: str, tried: frozenset[str]) -> CalledConnection | None:
        """Return the least loaded worker that was not tried yet, None when there is none or enough were tried."""
        fit = [
            worker
            for worker in self._workers.values()
            if node_type in worker.node_types
            and worker.worker_id not in tried
            and worker in self._pool
            and worker.accepts
        ]
        return min(fit, key=lambda worker: worker.load) if fit and len(tried) < MAX_CANDIDATES else None

    async def _hand_over(
        self, worker: CalledConnection, held: Held, shard: int, candidate: CalledConnection, tried: frozenset[str]
    ) -> bool:
        """Give a node task to the candidate; return whether the candidate got it."""
        dispatcher = self._dispatchers[shard]
        candidate.incoming += 1
        try:
            effects = await dispatcher.shard.tasks.pass_on(worker.worker_id, held, candidate.worker_id)
        except Exception as error:
            _log.warning("node_task_not_passed_on", node_task=held.task_id, error=error)
            return False
        finally:
            candidate.incoming -= 1
        worker.forget(shard, [held])
        self._pool.refresh(worker)
        passed_on = tuple(structs.replace(each, sent_before=True) for each in effects.assignments)
        for assignment in passed_on:
            candidate.tried[assignment.nonce] = tried
        dispatcher.apply(structs.replace(effects, assignments=passed_on), recipient=candidate)
        self._pool.refresh(candidate)
        # A node task that is to stop goes to nobody: giving it back ends it.
        return bool(passed_on)
