"""A worker's stream: opening it, hearing it, and what follows when it breaks."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from tradewind.node_task_manager.ports.work import Held, Outcome, in_pieces
from tradewind.node_task_manager.ports.workers import WorkerDirectory
from tradewind.node_task_manager.use_cases.connected_worker import ConnectedWorker
from tradewind.node_task_manager.use_cases.dispatch import Dispatcher
from tradewind.node_task_manager.use_cases.reclaim import reclaim
from tradewind.node_task_manager.use_cases.report import MAX_OUTCOMES, Report
from tradewind.node_task_manager.use_cases.worker_pool import WorkerPool
from tradewind.server.faults import NotFound
from tradewind.server.side_tasks import SideTasks
from tradewind.server.stalls import StallDetector


class Connections:
    """Opens and closes the sessions of workers over all shards."""

    def __init__(
        self,
        dispatchers: Mapping[int, Dispatcher],
        pool: WorkerPool,
        directory: WorkerDirectory,
        stalls: StallDetector,
        grace_s: float,
    ) -> None:
        self._dispatchers = dispatchers
        self._pool = pool
        self._directory = directory
        self._stalls = stalls
        self._grace_s = grace_s
        self._leaving = SideTasks()
        self.shards = frozenset(dispatchers)
        """The shards that tokens may name."""

    async def open(
        self, worker: ConnectedWorker, held: Sequence[tuple[int, Held]], welcome: Callable[[int], None]
    ) -> None:
        """Open the worker's next session; it keeps `held` node tasks whose lease stands, and learns which it has lost.

        `welcome` is called with the session's number before anything else is said. Call `close` even when this fails.

        Raises NotFound when the registry does not know the worker.
        """
        if not await self._directory.knows(worker.worker_id):
            raise NotFound("worker", worker.worker_id)
        for number, dispatcher in self._dispatchers.items():
            mine = [token for shard, token in held if shard == number]
            session = await dispatcher.shard.tasks.open_session(worker.worker_id, worker.incarnation, mine)
            if not worker.sessions:
                welcome(session.session)
            worker.sessions[number] = session.session
            lost = set(session.lost)
            worker.line.report_losses(
                number,
                [(token, "the lease lapsed while the stream was broken") for token in mine if token.nonce in lost],
            )
            worker.held.update({token.nonce: (number, token) for token in mine if token.nonce not in lost})
            dispatcher.apply(session.effects)
        self._pool.add(worker)
        self._request_claims()

    async def handle_message(
        self,
        worker: ConnectedWorker,
        sequence: int,
        outcomes: Sequence[tuple[int, Outcome]] = (),
        given_back: Sequence[tuple[int, Held]] = (),
        renewed: Sequence[tuple[int, Held]] | None = None,
        *,
        awaited: bool = False,
    ) -> None:
        """Carry a message to the shards that it concerns; it is acknowledged once it has taken effect in all of them.

        `renewed` names all that the worker holds, None for no renewal; the worker may wait for the acknowledgement
        (`awaited`). Returns as soon as more may come.
        """
        reports: list[tuple[Dispatcher, Report]] = []
        for number, dispatcher in self._dispatchers.items():
            ended = [outcome for shard, outcome in outcomes if shard == number]
            back = [token for shard, token in given_back if shard == number] if given_back else ()
            *firsts, last = in_pieces(ended, MAX_OUTCOMES)
            reports += [(dispatcher, Report(worker, piece, sequence)) for piece in firsts]
            if last or back or renewed is not None:
                held = [token for shard, token in renewed or () if shard == number]
                report = Report(worker, last, sequence, given_back=back, renew=renewed is not None, held=held)
                reports.append((dispatcher, report))
        worker.line.expect(sequence, len(reports), awaited=awaited)
        for dispatcher, report in reports:
            dispatcher.report(report)
        for dispatcher, _ in reports:
            if dispatcher.full:
                await dispatcher.wait_for_room()

    def refresh(self, worker: ConnectedWorker) -> None:
        """Note that a worker may have new room."""
        self._pool.refresh(worker)
        if worker.room:
            self._request_claims()

    def answers_pings_again(self, worker: ConnectedWorker) -> None:
        """Note that a silent worker has answered a ping."""
        self._pool.changed(worker)
        self.refresh(worker)

    def close(self, worker: ConnectedWorker) -> None:
        """Note that the stream is gone; unless the worker opens another within `grace_s`, all it held counts as lost.

        That may be more than this process knows: a claim for the worker may be under way. A stream that broke because
        this process stood still says nothing of the worker, which may take longer to come back: its leases decide.
        """
        self._pool.remove(worker)
        if worker.sessions and not self._stalls.just_went_on():
            self._leaving.begin(self._give_back_later(worker))

    async def stop(self) -> None:
        """Leave what was to be given back to the leases."""
        await self._leaving.end()

    async def _give_back_later(self, worker: ConnectedWorker) -> None:
        await asyncio.sleep(self._grace_s)
        for number, session in worker.sessions.items():
            await reclaim(worker.worker_id, session, self._dispatchers[number])

    def _request_claims(self) -> None:
        for dispatcher in self._dispatchers.values():
            dispatcher.request_claim()
