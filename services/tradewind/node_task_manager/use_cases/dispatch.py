"""The heart of the node task manager: one flush loop per shard.

While scripts run, reports, submissions and room collect; the next script takes all of them, and what it makes ready
goes to workers with its reply. Nothing here waits for a single item or polls.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence

import structlog

from tradewind.node_task_manager.domain.component import RunSubmission, SubmitResult
from tradewind.node_task_manager.domain.fan_out import FanOutStep
from tradewind.node_task_manager.domain.limits import OUTPUT_BYTES
from tradewind.node_task_manager.metrics import LEASES_LOST, count_ended
from tradewind.node_task_manager.ports.work import Effects, Held
from tradewind.node_task_manager.use_cases.alarm import Alarm
from tradewind.node_task_manager.use_cases.caches import ResultCaches
from tradewind.node_task_manager.use_cases.delivery import Delivery
from tradewind.node_task_manager.use_cases.fan_out import FanOuts
from tradewind.node_task_manager.use_cases.plans import PlanCache
from tradewind.node_task_manager.use_cases.report import MAX_BYTES, Report, ReportQueue
from tradewind.node_task_manager.use_cases.shard import Shard
from tradewind.node_task_manager.use_cases.trace_nodes import TraceNodes
from tradewind.node_task_manager.use_cases.workers import ConnectedWorker, Room, WorkerPool
from tradewind.server.ending import end_tasks
from tradewind.server.faults import Exhausted, Unavailable

_log = structlog.get_logger(__name__)
_MAX_RUNS = 200
_MAX_WAITING_RUNS = 10_000
_MAX_WAITING_RUN_BYTES = 64 * 1024 * 1024
_MOST_UNDER_WAY = 2
"""Scripts with outcomes that the store has at a time: with one it would wait for what is made of each answer here."""
_RETRY_S = (0.05, 0.1, 0.2, 0.5, 1.0)
_MAX_TRIES = 50
_REMIND_S = 2.1
"""A claim that its worker does not name is sent again only once it is 2 s old."""
_STOP_S = 2.0


class Dispatcher:
    """Carries a shard's changes to its store; what they bring about is delivered as Delivery says."""

    def __init__(
        self,
        shard: Shard,
        pool: WorkerPool,
        plans: PlanCache,
        announce: Callable[[int, Sequence[int]], None],
        elsewhere: Callable[[int, Sequence[str]], None],
        caches: ResultCaches | None = None,
        traces: TraceNodes | None = None,
    ) -> None:
        self.shard = shard
        self._pool = pool
        self._traces = traces
        self._delivery = Delivery(shard, pool, plans, announce, elsewhere, self.report, caches, traces)
        self._caches = caches
        self._fan_outs = FanOuts(shard, plans, self._fan_out, OUTPUT_BYTES)
        self._reports = ReportQueue()
        self._runs: deque[tuple[RunSubmission, asyncio.Future[SubmitResult]]] = deque()
        self._run_bytes = 0
        self._claims = 0
        self._todo = False
        self._flushed = 0
        self._stopping = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._under_way: set[asyncio.Task[None]] = set()
        self._reminder: asyncio.TimerHandle | None = None
        self._remind_again = False
        self._due = Alarm(self._drain)
        pool.on_room(self._wake.set)

    def start(self) -> None:
        """Begin to flush."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Flush what is there, unless the store is away, and end; runs that were not submitted are refused."""
        self._stopping = True
        self._wake.set()
        if self._reminder is not None:
            self._reminder.cancel()
        self._due.cancel()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=_STOP_S)
            await end_tasks([self._task, *self._under_way])
        await self._delivery.stop()
        await self._fan_outs.stop()
        _refuse(self._runs, _leaving())

    def report(self, report: Report) -> None:
        """Take what a worker reports; it is acknowledged when it has taken effect."""
        self._reports.put(report)
        self._wake.set()

    async def relieved(self) -> None:
        """Return as soon as more reports may come; while the store is away, too many must not pile up."""
        await self._reports.relieved()

    def remind(self, worker: ConnectedWorker) -> None:
        """Tell a worker again of stops, and of what it was given without hearing of it."""
        if worker.called:
            worker.line.resync()
        elif self.shard.number in worker.sessions:
            self.report(Report(worker, renew=True))

    def require_room(self) -> None:
        """Raise Exhausted when too many runs are waiting already."""
        if len(self._runs) > _MAX_WAITING_RUNS or self._run_bytes > _MAX_WAITING_RUN_BYTES:
            raise Exhausted("QUEUE_FULL", "too many runs are waiting to be stored; submit again in a second")

    def submit(self, run: RunSubmission) -> asyncio.Future[SubmitResult]:
        """Take a run and return what to await for its answer; raises what the store raised.

        Raises Unavailable when the server is leaving.
        """
        if self._stopping:
            raise _leaving()
        future: asyncio.Future[SubmitResult] = asyncio.get_running_loop().create_future()
        self._runs.append((run, future))
        self._run_bytes += len(run.inputs_json)
        self._wake.set()
        return future

    def look(self) -> None:
        """Look for ready node tasks: there is new room, or news of work."""
        self._claims = self._pool.rounds
        self._wake.set()

    def recovered(self) -> None:
        """The store is back: workers say again what it may have forgotten, and hear again what was lost on its way."""
        for worker in self._pool:
            worker.line.resync()
        if self._reminder is None:
            self._reminder = asyncio.get_running_loop().call_later(_REMIND_S, self._remind_all)
        else:
            self._remind_again = True

    def _drain(self) -> None:
        """Claim also without room: what has become due is queued, and others hear of it."""
        self._todo = True
        self._wake.set()

    def _remind_all(self) -> None:
        for worker in self._pool:
            self.remind(worker)
        self._reminder = None
        if self._remind_again:
            # What was lost since the first recovery is not old enough yet; outages may follow each other for long.
            self._remind_again = False
            self._reminder = asyncio.get_running_loop().call_later(_REMIND_S, self._remind_all)

    @property
    def _claim_due(self) -> bool:
        return not self._stopping and (self._todo or (self._claims > 0 and self._pool.has_room))

    async def _run(self) -> None:
        failures = 0
        while True:
            # After a failure the next turn claims at any rate: what that one missed, and to notice recovery.
            self._todo = self._todo or failures > 0
            if not (self._reports or self._runs or self._claim_due or any(task.done() for task in self._under_way)):
                if self._stopping and not self._under_way:
                    return
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                stored = await self._flush()
                if stored and failures:
                    self.recovered()
                failures = 0 if stored else failures or 1
            except Exception as error:
                _log.warning("flush failed", shard=self.shard.number, error=repr(error))
                if self._stopping:
                    return
                await asyncio.sleep(_RETRY_S[min(failures, len(_RETRY_S) - 1)])
                failures += 1

    async def _flush(self) -> bool:
        """Carry one turn of everything to the store; False when runs had to be refused."""
        stored = await self._flush_runs() if self._runs else True
        await self._collect(_MOST_UNDER_WAY - 1 if self._reports else _MOST_UNDER_WAY)
        if self._reports:
            batch = self._reports.take()
            if all(report.plain for report in batch):
                task = asyncio.get_running_loop().create_task(self._flush_reports(batch))
                self._under_way.add(task)
                task.add_done_callback(lambda _: self._wake.set())
            else:
                await self._collect(0)
                await self._flush_reports(batch)
        elif self._claim_due:
            await self._claim()
        return stored

    async def _collect(self, most: int) -> None:
        """Wait until at most so many flushes of reports are under way. Raises what one that has ended raised."""
        while True:
            ended = [task for task in self._under_way if task.done()]
            self._under_way.difference_update(ended)
            for error in [task.exception() for task in ended]:
                if error is not None:
                    raise error
            if len(self._under_way) <= most:
                return
            self._wake.clear()
            await self._wake.wait()

    async def _flush_runs(self) -> bool:
        batch = self._take_runs()
        if not batch:
            return True
        offers = self._pool.promise(self.shard.number)
        begun_ns = time.time_ns()
        try:
            submitted = await self.shard.tasks.submit([run for run, _ in batch], [v for _, v in offers])
        except BaseException as error:
            self._pool.settle(offers)
            if not isinstance(error, Exception):
                _refuse(batch, _leaving())
                raise
            _log.warning("runs could not be submitted", shard=self.shard.number, count=len(batch), error=repr(error))
            _refuse(batch, error)
            return False
        for (_, future), result in zip(batch, submitted.results, strict=True):
            if not future.done():
                future.set_result(result)
        if self._traces is not None:
            self._traces.submitted(zip([run for run, _ in batch], submitted.results, strict=True), begun_ns)
        self.apply(submitted.effects, offers)
        return True

    def _take_runs(self) -> list[tuple[RunSubmission, asyncio.Future[SubmitResult]]]:
        """Take as many runs as make one script, leaving out those whose callers have gone."""
        batch: list[tuple[RunSubmission, asyncio.Future[SubmitResult]]] = []
        size = 0
        while self._runs and len(batch) < _MAX_RUNS:
            run, future = self._runs[0]
            size += len(run.inputs_json)
            if batch and size > MAX_BYTES:
                break
            self._runs.popleft()
            self._run_bytes -= len(run.inputs_json)
            if not future.done():
                batch.append((run, future))
        return batch

    async def _fan_out(self, steps: Sequence[FanOutStep]) -> Sequence[None]:
        offers = self._pool.promise(self.shard.number)
        try:
            effects = await self.shard.tasks.fan_out(steps, [vacancy for _, vacancy in offers])
        except BaseException as error:
            self._pool.settle(offers)
            if isinstance(error, Exception):
                # Items may have been given to workers by an answer that was lost.
                self.recovered()
            raise
        self.apply(effects, offers)
        return [None] * len(steps)

    async def _claim(self) -> None:
        self._claims, self._todo = max(0, self._claims - 1), False
        offers = self._pool.promise(self.shard.number)
        try:
            effects = await self.shard.tasks.claim([vacancy for _, vacancy in offers])
        except BaseException:
            self._pool.settle(offers)
            raise
        self.apply(effects, offers)

    async def _flush_reports(self, batch: Sequence[Report]) -> None:
        try:
            await self._complete([report for report in batch if report.outcomes])
            rest = [report for report in batch if report.given_back or report.postponed or report.renew]
            if rest:
                ends = await asyncio.gather(*map(self._follow_up, rest), return_exceptions=True)
                for end in ends:
                    if end is not None:
                        raise end
        except Exception as error:
            self._try_again(batch, error)
            raise
        self._flushed += 1
        for report in batch:
            self._acknowledge(report)

    async def _complete(self, batch: Sequence[Report]) -> None:
        """Outcomes are idempotent by their nonce, so a later flush may repeat what this one did."""
        if not batch:
            return
        caches = self._caches if self._caches is not None and self._caches.in_flight else None
        if caches is not None:
            caches.ending([outcome.nonce for report in batch for outcome in report.outcomes])
        for report in batch:
            for outcome in report.outcomes:
                report.worker.held.pop(outcome.nonce, None)
            self._pool.refresh(report.worker)
        offers = self._pool.promise(self.shard.number)
        outcomes = [outcome for report in batch for outcome in report.outcomes]
        try:
            effects = await self.shard.tasks.complete(outcomes, [vacancy for _, vacancy in offers])
        except BaseException:
            self._pool.settle(offers)
            raise
        count_ended(outcomes, effects.results)
        if self._traces is not None:
            self._traces.ended(outcomes, effects.results)
        refusals = iter(effects.results)
        for report in batch:
            losses = []
            for outcome in report.outcomes:
                refused = next(refusals)
                if caches is not None:
                    caches.ended(outcome, refused)
                if refused:
                    losses.append((Held(outcome.task_id, outcome.attempt, outcome.nonce), refused))
            if losses:
                report.worker.line.lose(self.shard.number, losses)
            report.outcomes = ()
        self.apply(effects, offers)

    async def _follow_up(self, report: Report) -> None:
        """Give back and renew, after all outcomes that came before: what has ended must not be sent again."""
        worker, number = report.worker, self.shard.number
        if report.given_back:
            effects = await self.shard.tasks.give_back(worker.worker_id, worker.sessions[number], report.given_back)
            self._release(worker, [held.nonce for held in report.given_back])
            report.given_back = ()
            self.apply(effects)
            self.look()
        if report.postponed:
            postponed, effects = report.postponed, await self.shard.tasks.postpone(report.postponed)
            self._release(worker, [each.nonce for each in postponed])
            report.postponed = ()
            self.apply(effects)
            self.look()
            if self._caches is not None:
                await self._caches.waiters.postponed(number, [each.task_id for each in postponed])
        if report.renew and worker in self._pool:
            held = worker.held_in(number) if report.held is None else report.held
            renewal = await self.shard.tasks.renew(worker.worker_id, worker.sessions[number], held)
            if not renewal.session_current:
                self._delivery.replaced(worker)
                return
            lost = dict(renewal.lost)
            if lost:
                LEASES_LOST.inc(len(lost))
                worker.line.lose(number, [(token, lost[token.nonce]) for token in held if token.nonce in lost])
                self._release(worker, list(lost))
                self.look()
            self.apply(renewal.effects, taker=worker)
        report.renew = False

    def _release(self, worker: ConnectedWorker, nonces: Sequence[str]) -> None:
        for nonce in nonces:
            worker.held.pop(nonce, None)
        self._pool.refresh(worker)

    def _try_again(self, batch: Sequence[Report], error: Exception) -> None:
        """Queue reports again, from now on each alone: one that the store never takes must not keep back the rest."""
        for report in batch:
            report.failed_at = report.failed_at if report.tries else self._flushed
            report.tries += 1
            if report.tries > _MAX_TRIES and self._flushed - report.failed_at > _MAX_TRIES:
                _log.error("a report was dropped", worker_id=report.worker.worker_id, error=repr(error))
                losses = [(Held(o.task_id, o.attempt, o.nonce), "the store refuses it") for o in report.outcomes]
                report.worker.line.lose(self.shard.number, losses)
                self._acknowledge(report)
            else:
                self._reports.put(report)

    def _acknowledge(self, report: Report) -> None:
        if report.sequence is not None:
            report.worker.line.acknowledge(report.sequence)

    def apply(self, effects: Effects, offers: Sequence[Room] = (), taker: ConnectedWorker | None = None) -> None:
        """Carry what a change brought about to whom it concerns; then the offered room is free again.

        Assignments go to the very streams that were offered, or to `taker`: a later stream of the same worker must not
        get what its opening has given back.
        """
        takers = {worker.worker_id: worker for worker, _ in offers}
        if taker is not None:
            takers[taker.worker_id] = taker
        try:
            self._delivery.deliver(effects, takers)
        finally:
            self._pool.settle(offers)
        if effects.fan_outs and not self._stopping:
            self._fan_outs.take(effects.fan_outs)
        self._todo = self._todo or effects.todo > 0
        if effects.due_in >= 0 and not self._stopping:
            self._due.set(effects.due_in / 1000)
        if effects.todo or effects.ready_types:
            self.look()


def _leaving() -> Unavailable:
    return Unavailable("DRAINING", "this server is shutting down; submit again", retry_after_s=0.1)


def _refuse(runs: Sequence[tuple[RunSubmission, asyncio.Future[SubmitResult]]], error: Exception) -> None:
    for _, future in runs:
        if not future.done():
            future.set_exception(error)
