"""Taking reports of workers to the store of a shard, and sending each worker the result."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import structlog
from msgspec import structs

from tradewind.node_task_manager.metrics import LEASES_LOST, count_ended
from tradewind.node_task_manager.ports.work import Effects, Held, OutcomeKind
from tradewind.node_task_manager.use_cases.cache_flights import CacheFlights
from tradewind.node_task_manager.use_cases.caches import ResultCaches
from tradewind.node_task_manager.use_cases.connected_worker import ConnectedWorker
from tradewind.node_task_manager.use_cases.delivery import Delivery
from tradewind.node_task_manager.use_cases.report import Report, ReportQueue
from tradewind.node_task_manager.use_cases.shard import Shard
from tradewind.node_task_manager.use_cases.trace_nodes import TraceNodes
from tradewind.node_task_manager.use_cases.worker_pool import RoomOffer, WorkerPool

_log = structlog.get_logger(__name__)
_MAX_TRIES = 50


class Apply(Protocol):
    """Delivers the effects of a change."""

    def __call__(
        self, effects: Effects, offers: Sequence[RoomOffer] = (), recipient: ConnectedWorker | None = None
    ) -> None: ...


class ReportFlush:
    """Takes reports to a shard's store; those that the store did not take go back into the queue.

    `promise` offers room to a script, `apply` gets its effects, `request_claim` is called when there may be work for
    others.
    """

    def __init__(
        self,
        shard: Shard,
        pool: WorkerPool,
        reports: ReportQueue,
        promise: Callable[[], list[RoomOffer]],
        apply: Apply,
        request_claim: Callable[[], None],
        delivery: Delivery,
        caches: ResultCaches,
        traces: TraceNodes | None,
    ) -> None:
        self._shard = shard
        self._pool = pool
        self._reports = reports
        self._promise = promise
        self._apply = apply
        self._request_claim = request_claim
        self._delivery = delivery
        self._caches = caches
        self._traces = traces
        self._flushed = 0

    async def __call__(self, batch: Sequence[Report]) -> None:
        """Return when all reports have taken effect. Raises what the store raised."""
        try:
            await self._complete([report for report in batch if report.outcomes])
            rest = [report for report in batch if not report.only_outcomes]
            if rest:
                ends = await asyncio.gather(*map(self._follow_up, rest), return_exceptions=True)
                for end in ends:
                    if end is not None:
                        raise end
        except Exception as error:
            self._requeue(batch, error)
            raise
        self._flushed += 1
        for report in batch:
            self._acknowledge(report)

    async def _complete(self, batch: Sequence[Report]) -> None:
        """Store outcomes; they are idempotent by their nonce, so a later flush may repeat them."""
        if not batch:
            return
        flights = self._caches.flights if self._caches.flights else None
        if flights is not None:
            flights.ending([outcome.nonce for report in batch for outcome in report.outcomes])
        for report in batch:
            self._hold(report)
        offers = self._promise()
        outcomes = [outcome for report in batch for outcome in report.outcomes]
        effects = await self._pool.run_script(partial(self._shard.tasks.complete, outcomes), offers)
        count_ended(outcomes, effects.results)
        if self._traces is not None:
            self._traces.ended(outcomes, effects.results)
        if flights is not None or any(effects.results):
            self._notify(batch, effects.results, flights)
        for report in batch:
            report.outcomes = ()
        self._apply(effects, offers)

    def _hold(self, report: Report) -> None:
        """Note that a worker no longer holds ended attempts, and holds those that it has begun by itself."""
        worker = report.worker
        for each in report.outcomes:
            if each.kind is OutcomeKind.BEGUN:
                worker.held[each.nonce] = (self._shard.number, each.held)
            else:
                worker.release(each.nonce)
        self._pool.refresh(report.worker)

    def _hold_ended_again(self, report: Report) -> None:
        """Keep the ended attempts of a report that is not stored yet, or an earlier renewal would find them missing."""
        worker = report.worker
        ended = [each for each in report.outcomes if each.kind is not OutcomeKind.BEGUN]
        worker.held.update((each.nonce, (self._shard.number, each.held)) for each in ended)
        worker.unnamed.update(each.nonce for each in ended)
        worker.unnamed.update(each.nonce for each in report.given_back)

    def _notify(self, batch: Sequence[Report], results: Sequence[str], flights: CacheFlights | None) -> None:
        """Tell flights about all ends, and workers about refused ones."""
        refusals = iter(results)
        for report in batch:
            losses = []
            for outcome in report.outcomes:
                refused = next(refusals)
                if flights is not None:
                    flights.ended(outcome, refused)
                if refused:
                    losses.append((outcome.held, refused))
            if losses:
                self._report_losses(report, losses)

    def _report_losses(self, report: Report, losses: Sequence[tuple[Held, str]]) -> None:
        """Tell a worker which outcomes of its report were refused, and why."""
        report.worker.line.report_losses(self._shard.number, losses, report.sequence)
        self._release_all(report.worker, [held.nonce for held, _ in losses])

    async def _follow_up(self, report: Report) -> None:
        """Give back and renew, after all earlier outcomes: an ended node task must not be sent again."""
        worker, number = report.worker, self._shard.number
        if not worker.capacity:
            # It leaves, and believes that nothing more comes once this report is acknowledged.
            report.given_back = [*report.given_back, *self._delivery.withdraw(worker)]
        if report.given_back:
            effects = await self._shard.tasks.give_back(worker.worker_id, worker.sessions[number], report.given_back)
            self._release_all(worker, [held.nonce for held in report.given_back])
            report.given_back = ()
            self._apply(effects)
            self._request_claim()
        if report.postponed:
            postponed, effects = report.postponed, await self._shard.tasks.postpone(report.postponed)
            self._release_all(worker, [each.nonce for each in postponed])
            report.postponed = ()
            self._apply(effects)
            self._request_claim()
            await self._caches.waiters.postponed(number, [each.task_id for each in postponed])
        if report.renew and worker in self._pool:
            held = worker.held_in(number) if report.held is None else [*report.held, *worker.unnamed_in(number)]
            renewal = await self._shard.tasks.renew(worker.worker_id, worker.sessions[number], held)
            if not renewal.session_current:
                self._delivery.replaced(worker)
                return
            lost = dict(renewal.lost)
            if lost:
                LEASES_LOST.inc(len(lost))
                worker.line.report_losses(number, [(token, lost[token.nonce]) for token in held if token.nonce in lost])
                self._release_all(worker, list(lost))
                self._request_claim()
            again = tuple(structs.replace(each, sent_before=True) for each in renewal.effects.assignments)
            self._apply(structs.replace(renewal.effects, assignments=again), recipient=worker)
        report.renew = False

    def _release_all(self, worker: ConnectedWorker, nonces: Sequence[str]) -> None:
        for nonce in nonces:
            worker.release(nonce)
        self._pool.refresh(worker)

    def _requeue(self, batch: Sequence[Report], error: Exception) -> None:
        """Queue reports again, each by itself: one that the store never takes must not hold up the rest."""
        for report in batch:
            report.failed_at = report.failed_at if report.tries else self._flushed
            report.tries += 1
            if report.tries > _MAX_TRIES and self._flushed - report.failed_at > _MAX_TRIES:
                _log.error("report_dropped", worker_id=report.worker.worker_id, error=error)
                ends = report.outcomes
                self._report_losses(
                    report, [(each.held, "the store refused this report again and again") for each in ends]
                )
                self._acknowledge(report)
            else:
                self._hold_ended_again(report)
                self._reports.put(report)

    def _acknowledge(self, report: Report) -> None:
        if report.sequence is not None:
            report.worker.line.acknowledge(report.sequence)
