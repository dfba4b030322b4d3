"""Called workers: which there are, which node tasks each gets, and what follows when one does not take them."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import structlog

from tradewind.node_task_manager.domain.called import CalledWorker, caller_of
from tradewind.node_task_manager.ports.work import Held
from tradewind.node_task_manager.ports.workers import Answer, CalledWorkerDirectory, Ready, Replicas, WorkerCalls
from tradewind.node_task_manager.use_cases.called_connection import CalledConnection
from tradewind.node_task_manager.use_cases.called_line import CalledLine
from tradewind.node_task_manager.use_cases.connected_worker import Offer
from tradewind.node_task_manager.use_cases.dispatch import Dispatcher
from tradewind.node_task_manager.use_cases.pass_on import PassOnRefused
from tradewind.node_task_manager.use_cases.reclaim import reclaim
from tradewind.node_task_manager.use_cases.worker_pool import WorkerPool
from tradewind.server.ending import end_tasks
from tradewind.server.side_tasks import SideTasks

_log = structlog.get_logger(__name__)
_KEEP_MS = 10_000
QUIET_FACTOR = 5
"""While there is nobody to call, the registry is asked this many times less often."""
RETURN_S = 20.0
"""How long workers have to report to a registry that was away: longer than a try of theirs and the pause after it."""
_END_S = 7.5
"""Longer than a call takes (`WorkerCalls.execute`)."""


class CalledWorkers:
    """Keeps a connection to every live called worker, and gives node tasks to this process's share of them.

    Leases name no session, so it does no harm when two processes call one worker for a moment: it refuses what it has
    no room for. `connect` returns the WorkerCalls for an address, `notify_elsewhere(shard, workers)` tells other
    processes that a worker of theirs has room; `name` differs between processes. If a worker's connection breaks and
    cannot be restored within `grace_s`, the worker is lost, and with it what it holds.
    """

    def __init__(
        self,
        dispatchers: Mapping[int, Dispatcher],
        pool: WorkerPool,
        directory: CalledWorkerDirectory,
        replicas: Replicas,
        connect: Callable[[str], WorkerCalls],
        notify_elsewhere: Callable[[int, Sequence[str]], None],
        name: str,
        grace_s: float,
    ) -> None:
        self._dispatchers = dispatchers
        self._pool = pool
        self._directory = directory
        self._replicas = replicas
        self._connect = connect
        self._notify_elsewhere = notify_elsewhere
        self._name = name
        self._grace_s = grace_s
        self._workers: dict[str, CalledConnection] = {}
        self._departing: set[CalledConnection] = set()
        self._tasks = SideTasks()
        self._pass_on = PassOnRefused(dispatchers, pool, self._workers)
        self._passing_on = SideTasks()
        self._shutting_down = False
        self._incomplete_until_s = 0.0
        """Until then, the list may lack workers that live and could not say so."""

    async def refresh(self) -> bool:
        """Follow which workers there are; return whether there are none."""
        if self._shutting_down:
            return True
        known = await self._directory.called()
        now_s = asyncio.get_running_loop().time()
        if known is None:
            self._incomplete_until_s = now_s + RETURN_S
            return False
        found = {each.worker_id: each for each in known}
        if now_s < self._incomplete_until_s:
            found = {each.worker_id: each.listing for each in self._workers.values()} | found
        for worker_id, worker in list(self._workers.items()):
            if worker.listing != found.get(worker_id):
                self._update(worker, found.get(worker_id))
        if not found:
            return True
        replicas = await self._replicas.check_in(self._name, _KEEP_MS)
        for listing in found.values():
            worker = self._workers.get(listing.worker_id) or self._add(listing)
            if self._pool.get(listing.worker_id) is None:
                self._pool.add(worker)
            mine = worker in self._pool and caller_of(listing.worker_id, replicas) == self._name
            if mine and not worker.mine:
                await self._adopt(worker)
                continue
            if worker.mine and not mine:
                worker.mine = False
                self._pool.changed(worker)
                self._pool.refresh(worker)
            # The ends of what this process gave a worker may be reported to the one that calls it now.
            await self._recount(worker)
        return False

    async def leave(self) -> None:
        """Give these workers nothing more: another process calls them from now on."""
        self._close_lines()
        if self._workers:
            await self._replicas.leave(self._name)

    async def stop(self) -> None:
        """Wait for calls under way, give back node tasks that were not taken, and close all connections."""
        self._close_lines()
        await asyncio.gather(*(self._end(worker) for worker in self._workers.values()))
        await self._tasks.end()
        # Workers that have just left the list are still connected.
        await asyncio.gather(*(self._end(worker) for worker in self._departing))
        await self._passing_on.settle()

    def ended(self, worker_id: str, shard: int, held: Sequence[Held]) -> None:
        """Note that a worker has reported ends of attempts itself: it may have room for this process, or another, to
        fill."""
        worker = self._workers.get(worker_id)
        if worker is None:
            return
        worker.forget(shard, held)
        self._pool.refresh(worker)
        if not worker.mine:
            self._notify_elsewhere(shard, [worker_id])

    def gave_back(self, worker_id: str, shard: int, held: Sequence[Held]) -> None:
        """Note that a worker has given node tasks back: others get them first, as after a refusal, for it may leave."""
        worker = self._workers.get(worker_id)
        if worker is not None and not worker.backing_off:
            self._back_off(worker, Answer(refused="it has given node tasks back"))
        self.ended(worker_id, shard, held)

    def _close_lines(self) -> None:
        self._shutting_down = True
        for worker in self._workers.values():
            worker.mine = False
            self._pool.refresh(worker)
            worker.line.close("this server is shutting down")

    def _add(self, listing: CalledWorker) -> CalledConnection:
        line = CalledLine(
            self._connect(listing.api_url),
            lambda batch, answer: self._handle_answer(worker, batch, answer),
            lambda: self._begin(self._recount(worker)),
        )
        worker = CalledConnection(
            listing.worker_id,
            listing.incarnation,
            listing.node_types,
            0 if listing.draining else listing.capacity,
            line,
            sessions=dict.fromkeys(self._dispatchers, 0),
            offers=_offers(listing),
            listing=listing,
        )
        self._workers[listing.worker_id] = worker
        worker.watching = asyncio.get_running_loop().create_task(self._watch(worker))
        return worker

    def _update(self, worker: CalledConnection, listing: CalledWorker | None) -> None:
        """Note what has changed about a worker; with another process, address or node types it begins anew."""
        before = worker.listing
        if listing is not None and (listing.incarnation, listing.api_url, listing.node_types) == (
            before.incarnation,
            before.api_url,
            before.node_types,
        ):
            worker.listing = listing
            worker.capacity = 0 if listing.draining else listing.capacity
            self._pool.refresh(worker)
            return
        del self._workers[worker.worker_id]
        was_unlisted = listing is None and worker.mine
        worker.mine = False
        self._pool.remove(worker)
        worker.line.close("the worker is gone")
        self._departing.add(worker)
        self._begin(self._reclaim_unlisted(worker) if was_unlisted else self._end(worker))

    async def _reclaim_unlisted(self, worker: CalledConnection) -> None:
        """Take back what an unlisted worker holds, unless it can be reached or is listed again."""
        if not await worker.line.connected(self._grace_s) and worker.worker_id not in self._workers:
            await self._reclaim(worker)
        await self._end(worker)

    async def _end(self, worker: CalledConnection) -> None:
        if worker.watching is not None:
            await end_tasks([worker.watching])
        await worker.line.end(_END_S)
        self._departing.discard(worker)

    async def _watch(self, worker: CalledConnection) -> None:
        """Take back what a worker holds, as lost, when its connection breaks and cannot be restored."""
        while True:
            await worker.line.broken()
            worker.broken = True
            self._pool.refresh(worker)
            self._pool.changed(worker)
            restored = await worker.line.connected(self._grace_s)
            if not restored and worker.mine:
                self._back_off(worker, Answer(silent=True, refused="the connection broke and could not be restored"))
                await self._reclaim(worker)
            worker.broken, worker.lost = False, not restored
            self._pool.changed(worker)
            self._begin(self._recount(worker))

    async def _reclaim(self, worker: CalledConnection) -> None:
        undelivered = worker.line.drop()
        for number, dispatcher in self._dispatchers.items():
            mine = [each.assignment.held for each in undelivered if each.shard == number]
            await reclaim(worker.worker_id, 0, dispatcher, mine)

    async def _adopt(self, worker: CalledConnection) -> None:
        """Begin to call a worker: leases of its previous process are lost, those of the present one stay with it."""
        for number, dispatcher in self._dispatchers.items():
            shard = dispatcher.shard
            dispatcher.apply(await shard.tasks.begin_process(worker.worker_id, worker.incarnation))
            held = await shard.reader.held_by(worker.worker_id)
            worker.others |= {(number, task_id) for task_id in held} - {
                (number, each) for each in worker.believed_held(number)
            }
        worker.mine = True
        self._pool.changed(worker)
        if worker.others:
            # The connection shows whether the worker is there.
            self._begin(self._connect_now(worker))
        _log.info("calling_worker", worker_id=worker.worker_id, api_url=worker.listing.api_url)
        self._refresh_room(worker)

    async def _connect_now(self, worker: CalledConnection) -> None:
        await worker.line.connected(self._grace_s)

    async def _recount(self, worker: CalledConnection) -> None:
        """Find out which leases have ended without this process hearing of it."""
        for number, dispatcher in self._dispatchers.items():
            before = worker.believed_held(number)
            if before:
                held = await dispatcher.shard.reader.held_by(worker.worker_id)
                worker.recount(number, before, frozenset(held))
        self._refresh_room(worker)

    def _handle_answer(self, worker: CalledConnection, batch: Sequence[Ready], answer: Answer) -> None:
        tried = {each.nonce: worker.tried.pop(each.nonce, frozenset()) for each in batch}
        if answer.silent:
            # The worker may still run them. Handed out now, they could run twice, or crash one worker after another.
            _log.warning("called_worker_lost", worker_id=worker.worker_id, node_tasks=len(batch))
            self._back_off(worker, answer)
            return
        if worker.lost:
            worker.lost = False
            self._pool.changed(worker)
        rest = [each for each in batch if each.nonce not in answer.accepted]
        if answer.accepted:
            worker.backoff.accepted()
        if rest:
            self._back_off(worker, answer)
            self._passing_on.task(self._pass_on(worker, rest, tried)).add_done_callback(_log_failure)
        self._refresh_room(worker)

    def _back_off(self, worker: CalledConnection, answer: Answer) -> None:
        full = answer.full or not answer.refused
        pause = worker.backoff.refused(full=full, requested_s=answer.retry_after_s)
        level = _log.debug if full else _log.warning
        level("called_worker_refused", worker_id=worker.worker_id, why=answer.refused or "no room", rests_s=pause)
        if not worker.backing_off:
            worker.backing_off = True
            asyncio.get_running_loop().call_later(pause, self._end_back_off, worker)
        self._pool.refresh(worker)

    def _end_back_off(self, worker: CalledConnection) -> None:
        worker.backing_off = False
        self._refresh_room(worker)

    def _refresh_room(self, worker: CalledConnection) -> None:
        self._pool.refresh(worker)
        if worker.room:
            for dispatcher in self._dispatchers.values():
                dispatcher.request_claim()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.task(work).add_done_callback(_log_failure)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        _log.warning("called_worker_step_failed", error=error)


def _offers(listing: CalledWorker) -> dict[str, Offer]:
    """Return offers without known versions of node types, so that cached results of another process do not count."""
    return dict.fromkeys(listing.node_types, Offer(f"process {listing.incarnation}"))
