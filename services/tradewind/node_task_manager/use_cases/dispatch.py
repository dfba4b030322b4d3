"""The heart of the node task manager: one flush loop per shard.

While scripts run, reports, submissions and room collect; the next script takes all of them, and its reply brings the
node tasks that go to workers. Nothing here waits for a single item or polls.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextvars import Context
from functools import partial

import structlog

from tradewind.node_task_manager.domain.component import RunSubmission, SubmitResult
from tradewind.node_task_manager.domain.fan_out import FanOutStep
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.metrics import REAPED
from tradewind.node_task_manager.ports.events import NewEvent
from tradewind.node_task_manager.ports.work import Effects
from tradewind.node_task_manager.use_cases.alarm import Alarm
from tradewind.node_task_manager.use_cases.caches import ResultCaches
from tradewind.node_task_manager.use_cases.connected_worker import ConnectedWorker
from tradewind.node_task_manager.use_cases.delivery import Delivery
from tradewind.node_task_manager.use_cases.fan_out import FanOuts
from tradewind.node_task_manager.use_cases.plans import PlanCache
from tradewind.node_task_manager.use_cases.report import Report, ReportQueue
from tradewind.node_task_manager.use_cases.report_flush import ReportFlush
from tradewind.node_task_manager.use_cases.run_queue import RunQueue, refuse
from tradewind.node_task_manager.use_cases.shard import Shard
from tradewind.node_task_manager.use_cases.trace_nodes import TraceNodes
from tradewind.node_task_manager.use_cases.worker_pool import RoomOffer, WorkerPool
from tradewind.server.backoff import Backoff
from tradewind.server.ending import end_tasks
from tradewind.server.faults import Unavailable
from tradewind.server.incidents import IncidentLog
from tradewind.server.side_tasks import SideTasks

_log = structlog.get_logger(__name__)
_MAX_UNDER_WAY = 2
"""How many scripts with outcomes the store has at a time: with one, it would idle while each answer is handled here."""
_RETRY_S = (0.05, 1.0)
_REMIND_S = 2.1
"""An assignment that its worker does not name is sent again only once it is 2 s old."""
_STOP_S = 2.0


class Dispatcher:
    """Carries a shard's changes to its store; Delivery delivers their effects."""

    def __init__(
        self,
        shard: Shard,
        pool: WorkerPool,
        plans: PlanCache,
        publish_events: Callable[[int, Sequence[NewEvent]], None],
        notify_elsewhere: Callable[[int, Sequence[str]], None],
        caches: ResultCaches,
        traces: TraceNodes | None = None,
    ) -> None:
        self.shard = shard
        self._pool = pool
        self._traces = traces
        self._delivery = Delivery(shard, pool, plans, publish_events, notify_elsewhere, self.report, caches, traces)
        self._fan_outs = FanOuts(shard, plans, self._fan_out)
        self._reports = ReportQueue()
        self._flush_reports = ReportFlush(
            shard,
            pool,
            self._reports,
            self._promise,
            self.apply,
            self.request_claim,
            self._delivery,
            caches,
            traces,
        )
        self._runs = RunQueue()
        self._claims = 0
        """How many more claims are worthwhile, as long as there is room."""
        self._todo = False
        """Whether to claim even without room, because work is left over."""
        self._stopping = False
        self._wake = asyncio.Event()
        self._idle = False
        """Whether `_run` waits for something to do: then a plain report begins a flush by itself."""
        self._failing = IncidentLog(_log, "flush_failed", "flush_recovered")
        self._runs_failing = IncidentLog(_log, "runs_not_submitted", "runs_submitted_again")
        self._error: Exception | None = None
        """What a flush of plain reports has raised, until `_run` takes it."""
        self._context = Context()
        self._task: asyncio.Task[None] | None = None
        self._flushes = SideTasks()
        self._under_way = 0
        """How many flushes of plain reports have not ended."""
        self._reminder = Alarm(self._remind_all)
        self._remind_again = False
        """Whether the store has come back again since the reminder was set."""
        self._due_alarm = Alarm(self._force_claim)
        pool.on_room(self._on_room)

    def configure(self, config: SystemConfig) -> None:
        """Keep within limits, this shard's share, from the next script on."""
        self.shard.tasks.configure(config)
        self._delivery.bounded = config.bounded

    def start(self) -> None:
        """Begin to flush."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Flush what is waiting, unless the store is away, and end; runs that were not submitted are refused."""
        self._stopping = True
        self._wake.set()
        self._reminder.cancel()
        self._due_alarm.cancel()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=_STOP_S)
            await end_tasks([self._task, *self._flushes])
        await self._delivery.stop()
        await self._fan_outs.stop()
        self._runs.refuse_all(_shutting_down())

    def report(self, report: Report) -> None:
        """Take a worker's report; it is acknowledged when it has taken effect.

        While there is nothing else to do, a report that may overtake others is on its way a turn of the loop later.
        """
        self._reports.put(report)
        if not self._idle or not report.plain:
            self._wake.set()
        elif self._under_way < _MAX_UNDER_WAY:
            self._begin_plain_flush()

    @property
    def full(self) -> bool:
        """Whether so many reports wait that callers with more must wait."""
        return self._reports.full

    async def wait_for_room(self) -> None:
        """Return as soon as more reports may come; too many must not pile up while the store is away."""
        await self._reports.wait_for_room()

    def remind(self, worker: ConnectedWorker) -> None:
        """Tell a worker again about stops, and about node tasks that it was given without hearing of them."""
        if worker.called:
            worker.line.resync()
        elif self.shard.number in worker.sessions:
            self.report(Report(worker, renew=True))

    def require_room(self) -> None:
        """Raise Exhausted when too many runs are waiting."""
        self._runs.require_room()

    def submit(self, runs: Sequence[RunSubmission]) -> asyncio.Future[list[SubmitResult]]:
        """Take runs, at least one, and return a future with their answers, in order.

        Awaiting that raises what the store raised for any of them. Raises Unavailable when the server is leaving.
        """
        if self._stopping:
            raise _shutting_down()
        future = self._runs.put(runs)
        self._wake.set()
        return future

    def request_claim(self) -> None:
        """Claim ready node tasks soon, because there is new room or new work."""
        self._claims = self._pool.rounds
        self._wake.set()

    async def hasten(self, task_ids: Sequence[str]) -> Sequence[str]:
        """Make postponed node tasks ready; return "" for each that is, else why not."""
        effects = await self.shard.tasks.hasten(task_ids)
        self.apply(effects)
        self.request_claim()
        return effects.results

    def recovered(self) -> None:
        """Go on once the store is back: workers repeat what it may have forgotten, and are sent again what was lost."""
        for worker in self._pool:
            worker.line.resync()
        self._remind_again = self._reminder.is_set
        self._reminder.set(_REMIND_S)

    def _force_claim(self) -> None:
        """Claim even without room, so that due node tasks are queued and other replicas are notified."""
        self._todo = True
        self._wake.set()

    def _remind_all(self) -> None:
        for worker in self._pool:
            self.remind(worker)
        if self._remind_again:
            # Assignments lost since the first recovery are not old enough yet; one outage may follow another for long.
            self._remind_again = False
            self._reminder.set(_REMIND_S)

    @property
    def _claim_due(self) -> bool:
        return not self._stopping and (self._todo or (self._claims > 0 and self._pool.has_room))

    def _on_room(self) -> None:
        if self._claims:
            self._wake.set()

    @property
    def _reports_due(self) -> bool:
        """Whether reports wait that no flush under way will take."""
        return bool(self._reports) and (not self._reports.plain or self._under_way < _MAX_UNDER_WAY)

    async def _run(self) -> None:
        backoff, failing = Backoff(*_RETRY_S), False
        while True:
            # After a failure, the next turn always claims: to make up for the missed claim, and to notice recovery.
            self._todo = self._todo or failing
            if not (self._error or self._reports_due or self._runs or self._claim_due):
                if self._stopping and not self._under_way:
                    return
                await self._wait_for_work()
                continue
            try:
                stored = await self._flush()
                if stored and failing:
                    # A flush that has only begun says nothing about the store.
                    await self._wait_for_flushes(0)
                    self.recovered()
                    backoff.reset()
                failing = not stored
            except Exception as error:
                self._failing.note_error(error, shard=self.shard.number)
                if self._stopping:
                    return
                failing = True
                await backoff.pause()

    async def _wait_for_work(self) -> None:
        """Wait for something to do; plain reports are flushed meanwhile."""
        self._wake.clear()
        self._idle = True
        try:
            await self._wake.wait()
        finally:
            self._idle = False

    async def _flush(self) -> bool:
        """Carry one turn's work to the store; return False when runs had to be refused."""
        stored = True
        if self._runs:
            await self._wait_for_flushes(_MAX_UNDER_WAY - 1)
            stored = await self._flush_runs()
        if self._reports.plain:
            await self._wait_for_flushes(_MAX_UNDER_WAY - 1)
            self._begin_plain_flush()
        elif self._reports:
            await self._wait_for_flushes(0)
            await self._flush_reports(self._reports.next_batch())
        else:
            await self._wait_for_flushes(_MAX_UNDER_WAY)
            if self._claim_due:
                await self._claim()
        return stored

    def _begin_plain_flush(self) -> None:
        """Flush plain reports from the next turn of the loop on, with those that come until then."""
        self._under_way += 1
        _ = self._flushes.task(self._flush_plain(), self._context)

    async def _flush_plain(self) -> None:
        """Flush plain reports: all that come while `_run` has nothing to do, or one batch. Wake it for the rest."""
        try:
            while self._reports.plain:
                await self._flush_reports(self._reports.next_batch())
                if not self._idle:
                    break
        except Exception as error:
            self._error = error
        finally:
            self._under_way -= 1
            if not self._idle or self._error or self._reports or self._stopping:
                self._wake.set()

    async def _wait_for_flushes(self, most: int) -> None:
        """Wait until at most `most` flushes of plain reports are under way. Raises what an ended flush raised."""
        while self._under_way > most and self._error is None:
            self._wake.clear()
            await self._wake.wait()
        error, self._error = self._error, None
        if error is not None:
            raise error

    async def _flush_runs(self) -> bool:
        batch = self._runs.next_batch()
        if not batch:
            return True
        runs = [run for run, _ in batch]
        offers = self._promise()
        begun_ns = time.time_ns()
        try:
            submitted = await self._pool.run_script(partial(self.shard.tasks.submit, runs), offers)
        except BaseException as error:
            if not isinstance(error, Exception):
                refuse(batch, _shutting_down())
                raise
            self._runs_failing.note_error(error, shard=self.shard.number, count=len(batch))
            refuse(batch, error)
            return False
        if self._traces is not None:
            self._traces.submitted(zip(runs, submitted.results, strict=True), begun_ns)
        try:
            self.apply(submitted.effects, offers)
        finally:
            # Workers come first: a run does not wait for its submitter.
            for (_, answers), result in zip(batch, submitted.results, strict=True):
                answers.add(result)
        return True

    def _promise(self) -> list[RoomOffer]:
        """Offer room to a script; leave some for the next one, unless waiting node tasks can fill all of it."""
        return self._pool.promise(self.shard.number, reserve=not self._claims)

    async def _fan_out(self, steps: Sequence[FanOutStep]) -> Sequence[None]:
        offers = self._pool.promise(self.shard.number)
        try:
            effects = await self._pool.run_script(partial(self.shard.tasks.fan_out, steps), offers)
        except Exception:
            # The lost answer may have given items to workers.
            self.recovered()
            raise
        self.apply(effects, offers)
        return [None] * len(steps)

    async def _claim(self) -> None:
        self._claims, self._todo = max(0, self._claims - 1), False
        offers = self._pool.promise(self.shard.number)
        self.apply(await self._pool.run_script(self.shard.tasks.claim, offers), offers)

    def apply(
        self, effects: Effects, offers: Sequence[RoomOffer] = (), recipient: ConnectedWorker | None = None
    ) -> None:
        """Deliver the effects of a change; then release the room that was offered for it.

        Assignments go only to the streams that were offered, or to `recipient`: a later stream of the same worker must
        not get node tasks that its opening has given back.
        """
        recipients = {worker.worker_id: worker for worker, _ in offers}
        if recipient is not None:
            recipients[recipient.worker_id] = recipient
        try:
            self._delivery.deliver(effects, recipients, at_once=not self._reports)
        finally:
            self._pool.settle(offers)
        if effects.fan_outs and not self._stopping:
            self._fan_outs.start(effects.fan_outs)
        self._todo = self._todo or effects.todo > 0
        if effects.lost:
            REAPED.inc(effects.lost)
        if effects.due_in >= 0 and not self._stopping:
            self._due_alarm.set(effects.due_in / 1000)
        if effects.todo or effects.ready_types:
            self.request_claim()


def _shutting_down() -> Unavailable:
    return Unavailable("DRAINING", "this server is shutting down; submit again", retry_after_s=0.1)
