"""Sessions of workers in memory, and the leases that workers hold in them."""

from collections.abc import Callable, Collection, Sequence

from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.node_task import NodeTask
from tradewind.node_task_manager.ports.node_tasks import Renewal, Session
from tradewind.node_task_manager.ports.work import Effects, Held
from tradewind.node_task_manager.stores.memory.call import Call
from tradewind.node_task_manager.stores.memory.claiming import MemoryClaiming
from tradewind.node_task_manager.stores.memory.records import holds_lease
from tradewind.node_task_manager.stores.memory.replacing import replace


class MemorySessions(MemoryClaiming):
    """Opens sessions; renews, takes back and passes on leases."""

    def __init__(self, limits: Limits, clock: Callable[[], int]) -> None:
        super().__init__(limits, clock)
        self._incarnations: dict[str, str] = {}

    async def open_session(self, worker_id: str, incarnation: str, held: Sequence[Held]) -> Session:
        call = Call()
        self._sessions[worker_id] = session = max(self._sessions.get(worker_id, 0) + 1, self._clock())
        same = self._incarnations.get(worker_id) == incarnation
        self._incarnations[worker_id] = incarnation
        kept, lost = set(), []
        for token in held:
            task = self._tasks.get(token.task_id)
            if holds_lease(task, token.nonce):
                kept.add(token.task_id)
                self._extend(task, call)
                self._record_heartbeat(task)
            elif self._loss_reason(task, token):
                lost.append(token.nonce)
        await self._give_back_all(worker_id, kept, lost=not same, call=call)
        return Session(session, tuple(lost), self._conclude(call))

    async def begin_process(self, worker_id: str, incarnation: str) -> Effects:
        call = Call()
        if self._incarnations.get(worker_id, incarnation) != incarnation:
            await self._give_back_all(worker_id, (), lost=True, call=call)
        self._incarnations[worker_id] = incarnation
        return self._conclude(call)

    async def renew(self, worker_id: str, session: int, held: Sequence[Held]) -> Renewal:
        call, now = Call(), self._clock()
        deadline = now + self._limits.lease_ms
        current = self._is_latest(worker_id, session)
        lost, named = [], set()
        for token in held if current else ():
            task = self._tasks.get(token.task_id)
            if holds_lease(task, token.nonce):
                named.add(task.task_id)
                self._extend(task, call)
            elif reason := self._loss_reason(task, token):
                lost.append((token.nonce, reason))
        if current and session:
            for task_id in await self.held_by(worker_id):
                task = self._tasks[task_id]
                if task_id not in named and not task.stop and task.started_at + self._limits.unnamed_ms <= now:
                    call.assignments.append(self._assignment(task))
        return Renewal(current, tuple(lost), deadline, call.effects())

    def _extend(self, task: NodeTask, call: Call) -> None:
        """Renew a lease; if the node task is to stop, say so again instead."""
        if task.stop:
            call.terminate(task, task.stop)
        else:
            self._renew_lease(task)

    def _loss_reason(self, task: NodeTask | None, token: Held) -> str:
        """Say why a token that holds no lease is lost; "" when the end of its attempt was reported."""
        if task is None:
            return "no such node task"
        ended = task.status.terminal and task.nonce == token.nonce
        return "" if ended or self._private[task.task_id].settled == token.nonce else "the lease lapsed"

    async def give_back(self, worker_id: str, session: int, held: Sequence[Held] | None) -> Effects:
        call = Call()
        if not self._is_latest(worker_id, session):
            call.results.append("replaced")
        else:
            call.results.append("given_back")
            if held is None:
                await self._give_back_all(worker_id, (), lost=True, call=call)
            for token in held or ():
                task = self._tasks.get(token.task_id)
                if holds_lease(task, token.nonce):
                    self._give_back(task, lost=False, call=call)
        return self._conclude(call)

    async def _give_back_all(self, worker_id: str, kept: Collection[str], *, lost: bool, call: Call) -> None:
        """Give back what a worker holds, but for the node tasks in `kept`."""
        for task_id in await self.held_by(worker_id):
            if task_id not in kept:
                self._give_back(self._tasks[task_id], lost=lost, call=call)

    async def pass_on(self, worker_id: str, held: Held, to: str) -> Effects:
        call = Call()
        task = self._tasks.get(held.task_id)
        if holds_lease(task, held.nonce) and task.worker_id == worker_id and task.stop is None:
            task = self._lease(replace(task, progress=0, message="", step=""), to, self._new_nonce(task))
            call.assignments.append(self._assignment(task))
        return call.effects()
